# SPDX-License-Identifier: MIT
"""Places and values as gdb has them: the addresses of each line, and the arguments of each call, of one program in C, C++ and Rust, by
several compilers and levels of optimisation, with debug information inside, split and separate."""
import os
import re
import shutil
import subprocess
import unittest

import harness

C = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct pair { int a, b; const char *name; };
static int total;
static inline int twice(int n) {
  return n * 2 + total;
}
static int add(struct pair *p, int n) {
  int sum = p->a + n;
  total += sum;
  return sum + twice(p->b);
}
__attribute__((noinline)) int weigh(struct pair *p, int count, const char *label) {
  int sum = 0;
  for (int i = 0; i < count; i++)
    sum += add(p, i);
  if (label != NULL)
    sum += (int)strlen(label);
  return sum;
}
__attribute__((noinline)) double scale(double by, float f, int n) {
  return by * n + f;
}
__attribute__((noinline)) long many(long a, long b, long c, long d, long e, long f, long g, char h) {
  return a + b + c + d + e + f + g + h;
}
__attribute__((noinline)) unsigned char narrow(signed char c, unsigned short s, unsigned char u, _Bool b) {
  return (unsigned char)(c + s + u + b);
}
__attribute__((noinline)) static int recurse(int depth) {
  return depth == 0 ? 0 : 1 + recurse(depth - 1) * 2;
}
__attribute__((noinline)) int by_value(struct pair p, int n) {
  return p.a + p.b + n;
}
int main(int argc, char **argv) {
  struct pair p = {argc, 3, "plum"};
  int sum = weigh(&p, 3, "label") + weigh(&p, 1, p.name);
  printf("%d %f\n", sum, scale(1.5, 0.25f, argc));
  long most = many(1, -2, 3, -4, 5, -6, 7, 'x');
  printf("%ld %d\n", most, narrow(-3, 65535, 200, 1));
  printf("%d\n", recurse(3 + argc));
  printf("%d %d\n", by_value(p, 4), twice(argc));
  return 0;
}
"""
C_OWN = ["weigh", "scale", "many", "narrow", "recurse", "by_value"]
C_INLINED = ["twice", "add"]

CPP = r"""
#include <cstdio>
#include <string>
namespace shop {
struct Item {
  int price;
  const char *name;
};
class Cart {
 public:
  explicit Cart(int limit) : limit_(limit) {}
  bool add(const Item *item, int count);
  bool add(const char *name, double price);
  int total() const { return total_ * factor_; }

 private:
  int limit_, total_ = 0, factor_ = 2;
};
__attribute__((noinline)) bool Cart::add(const Item *item, int count) {
  total_ += item->price * count;
  return total_ < limit_;
}
__attribute__((noinline)) bool Cart::add(const char *name, double price) {
  total_ += static_cast<int>(price) + name[0];
  return total_ < limit_;
}
template <class T>
__attribute__((noinline)) T larger(T a, T b) {
  return a < b ? b : a;
}
}  // namespace shop
int main(int argc, char **) {
  shop::Cart cart(1000);
  shop::Item item = {argc + 2, "plum"};
  const bool fits = cart.add(&item, 4) && cart.add("pear", 2.5);
  std::printf("%d %d\n", fits, cart.total());
  std::printf("%d\n", shop::larger<int>(argc, 3));
  std::printf("%.1f\n", shop::larger<double>(1.5, argc * 1.0));
  return 0;
}
"""
CPP_OWN = ["shop::Cart::add", "shop::larger<int>", "shop::larger<double>"]

RUST = r"""
pub struct Item { price: i32, count: u8 }
#[inline(never)]
pub fn weigh(item: &Item, factor: i64, by: f64) -> i64 {
    let sum = item.price as i64 * factor;
    sum + by as i64 + item.count as i64
}
#[inline(never)]
pub fn narrow(small: u8, flag: bool, wide: u64) -> u64 {
    wide + small as u64 + flag as u64
}
fn main() {
    let item = Item { price: std::env::args().count() as i32, count: 7 };
    println!("{}", weigh(&item, -3, 2.5));
    let some = std::env::args().count();
    println!("{}", narrow(some as u8 + 199, some > 0, (some as u64) << 40));
}
"""
RUST_OWN = ["corpus::weigh", "corpus::narrow"]

HIT = re.compile(r"\] \S+ +[\d.]+: (\w+): \(0x([0-9a-f]+)\)(.*)$")
VALUE = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"(?:\.\.\.)?|\S+)')


def number(text):
    try:
        return float(text) if re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?", text) else None
    except ValueError:
        return None


def value_of_gdb(text):
    """What gdb prints, in the tool's words; None: nothing that is compared."""
    if text.startswith("{") or "optimized out" in text or "synthetic" in text or "cannot" in text.lower():
        return None
    if match := re.match(r'(?:\([^)]*\) )?0x[0-9a-f]+ ("(?:[^"\\]|\\.)*")', text):
        return match[1]
    if re.match(r"(?:\(.*\) )?@?0x[0-9a-f]+", text):
        return "address"
    if text in ("true", "false"):
        return "1" if text == "true" else "0"
    if match := re.match(r"(-?\d+) '(.*)'$", text):
        return match[1]
    return text


def value_of_tool(text):
    if re.fullmatch(r"0x[0-9a-f]+", text):
        return "address"
    if match := re.fullmatch(r"'(.)'", text):
        return str(ord(match[1]))
    return text


def base_of(function):
    """Without the arguments of a template."""
    return re.sub(r"<.*", "", function)


def is_same(tool, debugger):
    if tool == debugger:
        return True
    one, other = number(tool), number(debugger)
    return one is not None and one == other


class Corpus(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.tool()
        self.gdb = harness.need("gdb")
        self.program = self.path("corpus")

    def build(self, compiler, source, *flags):
        name = {"C": "corpus.c", "CPP": "corpus.cpp"}[source]
        text = self.write(name, globals()[source].lstrip("\n"))
        subprocess.run([compiler, "-g", "-no-pie", "-fcf-protection=none", *flags, "-o", self.program, text], check=True,
                       cwd=self.folder, stderr=subprocess.PIPE)
        return name, len(globals()[source].splitlines())

    def ask(self, script):
        """What gdb prints."""
        commands = self.write("commands.gdb", "set confirm off\nset pagination off\nset width 0\nset breakpoint pending off\n"
                              "set print entry-values no\nset auto-load off\n" + script)
        done = subprocess.run([self.gdb, "-nx", "-batch", "-x", commands, self.program], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=300, check=False, cwd=self.folder,
                              env={**os.environ, "DEBUGINFOD_URLS": ""})
        return done.stdout.decode(errors="replace").splitlines()

    def lines_of_tool(self, source, lines):
        words = [word for n in range(1, lines + 1) for word in ("-p", f"p:l{n} {self.program}:{source}:{n}")]
        done = harness.run([harness.tool(), "--dry-run", "--skip-refused", *words, self.program])
        found, line = {}, 0
        for text in done.stdout.decode().splitlines():
            if match := re.match(r"p:uprobes/l(\d+) ", text):
                line = int(match[1])
            if match := re.search(r"at +\S+, ([^,]*), address 0x([0-9a-f]+)", text):
                found.setdefault(line, {})[int(match[2], 16)] = match[1]
        return found

    def lines_of_gdb(self, source, lines):
        """By line: addresses of its breakpoints, each with the line that gdb says of it."""
        found, line = {}, 0
        for text in self.ask("".join(f"echo @{n}\\n\nbreak {source}:{n}\ninfo breakpoints\ndelete\n"
                                     for n in range(1, lines + 1))):
            if match := re.match(r"@(\d+)$", text):
                line = int(match[1])
            if match := re.search(r" y +0x([0-9a-f]+) in .* at .*:(\d+)$", text):
                found.setdefault(line, {})[int(match[1], 16)] = int(match[2])
        return found

    def check_lines(self, source, lines, is_optimised):
        """Each place of the tool is one of gdb's. With optimisation gdb may stop after a function's first instruction, at
        further places of a line in the same function, and at a later line than was asked for."""
        tool, debugger = self.lines_of_tool(source, lines), self.lines_of_gdb(source, lines)
        self.assertGreater(len(tool), 10)
        equal = 0
        for line, places in tool.items():
            known = debugger.get(line, {})
            equal += set(places) == set(known)
            if not is_optimised:
                self.assertEqual(set(places), set(known), f"line {line}")
                continue
            has_moved = bool(known) and line not in known.values()
            for address, name in places.items():
                is_first = "+" not in name
                self.assertTrue(address in known or has_moved or is_first or not known,
                                f"line {line}: {address:#x} ({name}), gdb {known}")
        self.assertGreaterEqual(equal * 100, len(tool) * (75 if is_optimised else 100), (tool, debugger))

    def hits_of_tool(self, functions):
        """(function, address, {name: value}) in order; a function is known by the event that its place makes."""
        words = [word for function in functions for word in ("-p", f"{function} $params")]
        done = harness.run([*harness.tracer("-q", "--skip-refused", "-o", self.path("trace")), *words, self.program])
        self.assertEqual(done.returncode, 0, done.stderr)
        events = {base_of(function).replace("::", "_"): base_of(function) for function in functions}
        hits = []
        with open(self.path("trace"), encoding="latin-1") as file:
            for text in file:
                if match := HIT.search(text):
                    begins = max((event for event in events if match[1].startswith(event)), key=len, default=None)
                    hits.append((events.get(begins), int(match[2], 16),
                                 {name: value_of_tool(value) for name, value in VALUE.findall(match[3])}))
        return hits, done.stderr.decode()

    def hits_of_gdb(self, functions):
        script = "".join(f'break {function}\ncommands\nsilent\nset language c\nprintf "@%lx {base_of(function)}\\n", $pc\n'
                         f'set language auto\ninfo args\ncontinue\nend\n'
                         for function in functions)
        hits = []
        for text in self.ask(script + "run > /dev/null\n"):
            if match := re.match(r"@([0-9a-f]+) (.*)$", text):
                hits.append((match[2], int(match[1], 16), {}))
            elif hits and (match := re.match(r"(\w+) = (.*)$", text)):
                hits[-1][2][match[1]] = value_of_gdb(match[2])
        return hits

    def compare(self, tool, debugger):
        compared = 0
        for name, value in debugger.items():
            if value is None:
                continue
            self.assertIn(name, tool, debugger)
            self.assertTrue(is_same(tool[name], value), f"{name}: {tool[name]}, gdb {value}")
            compared += 1
        return compared

    def check_arguments(self, own, inlined=()):
        """The same calls in the same order with the same arguments. Of inlined copies those at the same address."""
        tool, said = self.hits_of_tool(own)
        debugger = self.hits_of_gdb(own)
        self.assertEqual([hit[0] for hit in tool], [hit[0] for hit in debugger], said)
        compared = sum(self.compare(one[2], other[2]) for one, other in zip(tool, debugger))
        self.assertGreater(compared, len(own))
        if not inlined:
            return
        tool, _ = self.hits_of_tool(inlined)
        at = {}
        for _, address, values in self.hits_of_gdb(inlined):
            at.setdefault(address, []).append(values)
        mine = {}
        for _, address, values in tool:
            mine.setdefault(address, []).append(values)
        for address in set(at) & set(mine):
            self.assertEqual(len(at[address]), len(mine[address]), hex(address))
            for one, other in zip(mine[address], at[address]):
                self.compare(one, {name: value for name, value in other.items() if name in one})

    def check(self, compiler, source, own, inlined, *flags):
        name, lines = self.build(compiler, source, *flags)
        is_optimised = "-O0" not in flags
        self.check_lines(name, lines, is_optimised)
        self.check_arguments([*own, *([] if is_optimised else inlined)], inlined if is_optimised else ())


class InC(Corpus):
    def test_gcc(self):
        for level in ("-O0", "-O2", "-O3"):
            with self.subTest(level=level):
                self.check(harness.need("gcc"), "C", C_OWN, C_INLINED, level)

    def test_clang(self):
        for level in ("-O0", "-O2"):
            with self.subTest(level=level):
                self.check(harness.need("clang"), "C", C_OWN, C_INLINED, level)

    def test_versions(self):
        for version in ("-gdwarf-4", "-gdwarf-5"):
            with self.subTest(version=version):
                self.check(harness.need("gcc"), "C", C_OWN, C_INLINED, "-O2", version)

    def test_split(self):
        for level in ("-O0", "-O2"):
            with self.subTest(level=level):
                self.check(harness.need("gcc"), "C", C_OWN, C_INLINED, "-gsplit-dwarf", level)

    def test_separate(self):
        name, lines = self.build(harness.need("gcc"), "C", "-O2")
        debug = self.program + ".debug"
        subprocess.run(["objcopy", "--only-keep-debug", self.program, debug], check=True)
        subprocess.run(["strip", self.program], check=True)
        subprocess.run(["objcopy", "--add-gnu-debuglink=" + debug, self.program], check=True)
        self.check_lines(name, lines, True)
        self.check_arguments(C_OWN, C_INLINED)


class InCPlusPlus(Corpus):
    def test_gcc(self):
        for level in ("-O0", "-O2"):
            with self.subTest(level=level):
                self.check(harness.need("g++"), "CPP", CPP_OWN, (), level)

    def test_clang(self):
        for level in ("-O0", "-O2"):
            with self.subTest(level=level):
                self.check(harness.need("clang++"), "CPP", CPP_OWN, (), level)


class InRust(Corpus):
    """Without optimisation: of a boolean argument of an optimised function gdb knows more (docs/limits.md)."""

    def test_arguments(self):
        if shutil.which("rustc") is None:
            raise unittest.SkipTest("rustc is not installed")
        text = self.write("corpus.rs", RUST)
        built = subprocess.run(["rustc", "-g", "-C", "opt-level=0", "-o", self.program, text], cwd=self.folder,
                               stderr=subprocess.PIPE, check=False)
        if built.returncode != 0:
            raise unittest.SkipTest("rustc cannot build here: " + built.stderr.decode())
        self.check_arguments(RUST_OWN)


if __name__ == "__main__":
    harness.main()
