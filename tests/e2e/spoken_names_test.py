# SPDX-License-Identifier: MIT
"""Functions by the names that tools print: C++ with parameters, templates and operators, both manglings of Rust, names of Go's kind;
lists of them can be given back."""
import os
import subprocess

import harness

CPP = r"""
#include <cstdio>
#include <string>
#define KEPT __attribute__((noinline, used))
namespace shop {
struct Item { int price; };
template <class T> struct Box { T value; KEPT T get() const { return value; } };
struct Cart {
  int total = 0;
  KEPT void add(Item const& item, int count) { total += item.price * count; }
  KEPT void add(int price) { total += price; }
  KEPT int size() const { return total; }
  KEPT Cart& operator+=(int n) { total += n; return *this; }
  KEPT int operator()(int n) { return total + n; }
  KEPT bool operator<(Cart const& other) const { return total < other.total; }
};
template <class T> KEPT T larger(T a, T b) { return a < b ? b : a; }
}
namespace { KEPT int secret(int n) { return n + 1; } }
struct Tagged { KEPT std::string __attribute__((abi_tag("v2"))) text() { return "x"; } };
// A name as Go's linker writes it.
extern "C" KEPT int go_method(int n) __asm__("\"main.(*Server).handle\"");
extern "C" int go_method(int n) { return n; }
int main() {
  shop::Cart cart, other;
  cart.add(shop::Item{3}, 2);
  cart.add(4);
  cart += 1;
  bool less = cart < other;
  shop::Box<int> box{7};
  std::printf("%d\n", cart.size() + cart(1) + less + shop::larger(1, 2) + static_cast<int>(shop::larger(1.5, 2.5)) + secret(1) +
                          box.get() + static_cast<int>(Tagged().text().size()) + go_method(2));
  return 0;
}
"""
RUST = r"""
use std::hint::black_box;
pub mod shop {
    use std::hint::black_box;
    pub struct Cart<T> { pub total: i32, pub tag: T }
    pub trait Shop { fn add(&mut self, n: i32) -> i32; }
    impl<T> Shop for Cart<T> { #[inline(never)] fn add(&mut self, n: i32) -> i32 { self.total += n; black_box(self.total) } }
    impl<T> Cart<T> { #[inline(never)] pub fn size(&self) -> i32 { black_box(self.total) } }
    #[inline(never)] pub fn larger<T: PartialOrd + Copy>(a: T, b: T) -> T { if black_box(a) < b { b } else { a } }
    #[inline(never)] pub fn plain(n: i32) -> i32 { black_box(n) }
}
use shop::Shop;
fn main() {
    let mut cart = shop::Cart { total: 1, tag: "x" };
    let sum = cart.add(3) + cart.size() + shop::larger(1, 2) + shop::larger(1.0, 2.0) as i32 + shop::plain(4);
    println!("{} {}", black_box(sum), cart.tag);
}
"""


GO = r"""
package main

import "os"

type Server struct {
	name string
	port int
}

//go:noinline
func (s *Server) handle(path string, n int) (int, bool) { return n + s.port + len(path), n > 2 }

//go:noinline
func sum(values []int, scale float64, ok bool, extra byte) int {
	total := int(scale) + int(extra)
	for _, value := range values {
		total += value
	}
	if ok {
		total++
	}
	return total
}

func main() {
	s := &Server{"web", 80}
	n, _ := s.handle("/index", 3)
	os.Exit(n - sum([]int{n, 2, 3}, 2.5, true, 7) + 20)
}
"""


class Spoken(harness.TestCase):
    def trace(self, *words, program=None):
        done = harness.run([*harness.tracer("-o", self.path("trace")), *words, "--", program or self.program])
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("trace"), encoding="latin-1") as file:
            done.hits = harness.parse_trace(file.read())
        return done.counts()

    def listed(self, glob):
        done = harness.run([harness.tool(), "-x", self.program, "-l" + glob])
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode().splitlines()


class Cpp(Spoken):
    def setUp(self):
        super().setUp()
        source = self.write("shop.cpp", CPP)
        self.program = harness.compiled([harness.need("g++"), "-O1", "-g", source], self.path("shop"))

    def test_names_as_tools_print_them(self):
        names = {"shop::Cart::add(shop::Item const&, int)": "shop_Cart_add",
                 "shop::Cart::add(int)": "shop_Cart_add",
                 "shop::Cart::size() const": "shop_Cart_size",
                 "shop::Cart::size": "shop_Cart_size",
                 "shop::Cart::operator+=(int)": "shop_Cart_operator",
                 "shop::Cart::operator()(int)": "shop_Cart_operator",
                 "shop::Cart::operator<(shop::Cart const&) const": "shop_Cart_operator",
                 "int shop::larger<int>(int, int)": "shop_larger",
                 "shop::larger<int>": "shop_larger",
                 "double shop::larger<double>(double, double)": "shop_larger",
                 "shop::Box<int>::get() const": "shop_Box_get",
                 "(anonymous namespace)::secret(int)": "secret",
                 "main.(*Server).handle": "main_Server_handle"}
        for name, event in names.items():
            for line in (name, f"'{name}'", f'"{name}" x=%si', f"shop:{name} x=%si"):
                with self.subTest(line=line):
                    self.assertEqual(self.trace("-p", line), {event: 1})

    def test_tags(self):
        for line in ("'Tagged::text[abi:v2]()'", "'Tagged::text[abi:cxx11][abi:v2]()' x=%si", "Tagged::text"):
            self.assertEqual(self.trace("-p", line), {"Tagged_text": 1})

    def test_all_that_nm_prints_works(self):
        printed = subprocess.run(["nm", "-C", self.program], capture_output=True, text=True, check=True).stdout
        names = {line[19:] for line in printed.splitlines() if "shop::" in line and line[17] in "tTwW"}
        self.assertGreater(len(names), 8)
        for name in names:
            done = harness.run([*harness.tracer("--dry-run", "-p", name), "--", self.program])
            self.assertEqual(done.returncode, 0, (name, done.stderr))

    def test_overloads(self):
        self.assertEqual(self.trace("-p", "shop::Cart::add"), {"shop_Cart_add": 1, "shop_Cart_add_1": 1})
        self.assertEqual(self.trace("-p", "shop::Cart::add*"), {"shop_Cart_add": 1, "shop_Cart_add_1": 1})
        self.assertEqual(self.trace("-p", "shop::larger"), {"shop_larger": 1, "shop_larger_1": 1})
        seen = self.trace("-p", "shop::Cart::size", "-r", "shop::Cart::size $retval:s32")
        self.assertEqual(seen, {"shop_Cart_size": 1, "shop_Cart_size__return": 1})

    def test_lists_can_be_given_back(self):
        lines = self.listed("shop::Cart::*")
        self.assertIn(f"{self.program}:shop::Cart::add(shop::Item const&, int)", lines)
        self.assertGreater(len(lines), 5)
        words = [word for line in lines for word in ("-p", line)]
        self.assertEqual(sum(self.trace(*words).values()), len(lines))
        self.write("list", "\n".join(lines) + "\n")
        self.assertEqual(sum(self.trace("-i", self.path("list")).values()), len(lines))

    def test_a_misspelt_name(self):
        done = harness.run([*harness.tracer("-p", "shop::Cart::ad(int)"), "--", self.program])
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"close: shop::Cart::add", done.stderr)


class Rust(Spoken):
    def build(self, mangling):
        source = self.write("shop.rs", RUST)
        program = self.path("shop")
        harness.need("rustc")
        made = harness.run(["rustc", "-O", "-C", f"symbol-mangling-version={mangling}", "-Z", "unstable-options",
                            "-o", program, source], env={**os.environ, "RUSTC_BOOTSTRAP": "1"})
        if made.returncode != 0:
            self.skipTest("rustc is not installed")
        self.program = program

    def check(self, names):
        for name, event in names.items():
            for line in (name, f"'{name}'", f"{name} x=%si"):
                with self.subTest(line=line):
                    self.assertEqual(self.trace("-p", line), {event: 1})

    def test_the_older_mangling(self):
        self.build("legacy")
        self.check({"shop::shop::plain": "shop_shop_plain", "shop::main": "shop_main",
                    "<shop::shop::Cart<T> as shop::shop::Shop>::add": "shop_shop_Cart_as_shop_shop_Shop_add",
                    "shop::shop::Cart<T>::size": "shop_shop_Cart_size"})
        self.assertEqual(len(self.trace("-p", "shop::shop::larger")), 2)
        lines = self.listed("shop::shop::*")
        self.assertIn(f"{self.program}:shop::shop::plain", lines)
        self.assertFalse([line for line in lines if "17h" in line])

    def test_the_newer_mangling(self):
        self.build("v0")
        self.check({"shop::shop::plain": "shop_shop_plain", "shop::main": "shop_main",
                    "<shop::shop::Cart<&str> as shop::shop::Shop>::add": "shop_shop_Cart_as_shop_shop_Shop_add",
                    "<shop::shop::Cart<&str>>::size": "shop_shop_Cart_size", "shop::shop::Cart::size": "shop_shop_Cart_size",
                    "shop::shop::larger::<i32>": "shop_shop_larger"})
        self.assertEqual(len(self.trace("-p", "shop::shop::larger")), 2)
        self.assertIn(f"{self.program}:shop::shop::plain", self.listed("shop::shop::*"))

    def test_lists_can_be_given_back(self):
        self.build("v0")
        lines = self.listed("*shop::shop::*")
        self.assertGreater(len(lines), 3)
        self.trace(*[word for line in lines for word in ("-p", line)])


class Go(Spoken):
    """Names with brackets and blanks, and arguments in the registers that Go's compiler says."""

    def setUp(self):
        super().setUp()
        harness.need("go")
        self.program = self.path("server")
        environment = {**os.environ, "GOCACHE": self.path("cache"), "GO111MODULE": "off"}
        made = harness.run(["go", "build", "-o", self.program, self.write("server.go", GO)], env=environment)
        self.assertEqual(made.returncode, 0, made.stderr)

    def line_of(self, *words):
        done = harness.run([*harness.tracer("-q", "-o", self.path("trace")), *words, "--", self.program])
        self.assertEqual(done.returncode, 5, done.stderr)
        with open(self.path("trace"), encoding="latin-1") as file:
            [hit] = harness.parse_trace(file.read())
        return hit.arguments

    def test_arguments_by_name(self):
        self.assertEqual(self.line_of("-p", "main.(*Server).handle path.len n"), "len=6 n=3")
        self.assertEqual(self.line_of("-p", "main.(*Server).handle s->port name=s->name.len"), "port=80 name=3")
        self.assertEqual(self.line_of("-p", "main.sum values.len scale ok extra"), "len=3 scale=2.5 ok=1 extra=7")
        self.assertEqual(self.line_of("-r", "main.(*Server).handle $retval:s64"), "arg1=89")

    def test_arguments_by_number_are_refused(self):
        """$arg1 is the register of C's first argument."""
        for words in (["-p", "main.sum $arg1"], ["-p", "main.sum(values, scale)"], ["-r", "main.sum x=$entry_arg2"],
                      ["-p", "main.sum +8($arg2):u64"]):
            with self.subTest(words=words):
                done = harness.run([*harness.tracer(), *words, "--", self.program])
                self.assertEqual(done.returncode, 125, done.stderr)
                self.assertIn(b"'main.sum' is a function of Go", done.stderr)
                self.assertIn(b"--vars='main.sum'", done.stderr)


if __name__ == "__main__":
    harness.main()
