# SPDX-License-Identifier: MIT
"""Values that compilers and libraries make in their own ways: texts that have a length and no end, results of Go functions, variables of
a thread, members of virtual bases."""
import re
import subprocess

import harness

CPLUSPLUS = r"""
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
struct Base { int id, mode; explicit Base(int i) : id(i), mode(2 * i) {} virtual ~Base() {} };
struct Left : virtual Base { int l = 1; Left() : Base(1) {} };
struct Right : virtual Base { int r = 2; Right() : Base(1) {} };
struct Both : Left, Right { int b = 3; Both() : Base(42) {} };
struct More : Both { int m = 9; More() : Base(77) {} };
thread_local int calls = 0;
thread_local long long total = 100;
static __thread char tag[8] = "tag";
std::string global = "of the file";
__attribute__((noinline)) int take(const std::string &s, std::string_view v, std::string *p, Left *l, Both &b) {
  calls++, total += calls, tag[0] = static_cast<char>('a' + calls);
  asm volatile("" ::: "memory");  // here
  return static_cast<int>(s.size() + v.size() + p->size()) + l->id + b.id + tag[0];
}
__attribute__((noinline)) int enter(std::string_view v) { asm volatile("" ::: "memory"); return v.empty() ? 0 : v[0]; }
int main() {
  Both both;
  More more;
  std::string empty, text = "hello world", with_nul("a\0b", 3), bad;
  int sum = take(text, std::string_view("viewed and more").substr(0, 6), &with_nul, &both, both);
  sum += take(empty, {}, &text, &more, both);
  sum += enter(std::string_view(text).substr(6, 2));
  sum += enter(std::string_view(reinterpret_cast<const char *>(8), getenv("NEVER") ? 1 : 0));
  std::thread([&] { sum += take(text, text, &text, &both, more); }).join();
  std::printf("%d\n", sum != 0);
}
"""
HERE = 18  # the line in the source, which begins with a blank line

GO = """package main

import (
	"errors"
	"fmt"
)

type Mine struct{ code int }

func (m *Mine) Error() string { return "mine" }

type Name string

type Pair struct {
	a bool
	b int32
	f float64
}

//go:noinline
func greet(who Name, tags []string) string { return "hello " + string(who) }

//go:noinline
func sum(values []int, raw []byte, why error) int {
	if why != nil {
		return -1
	}
	return len(values) + len(raw)
}

//go:noinline
func halves(small []float32) int { return len(small) }

//go:noinline
func holds(what any) bool { return what != nil }

//go:noinline
func fails(why error, also fmt.Stringer, n int) error { return why }

//go:noinline
func many(a, b, c, d, e, f, g, h, i, j int, k string) int {
	if k == "other" {
		return i
	}
	return a + j + len(k)
}

type Both[K, V any] struct{}

func (b Both[K, V]) Error() string { return "both" }

func (b Both[K, V]) String() string { return "b" }

//go:noinline
func several(n int) (int, string, error) {
	if n == 0 {
		return 7, "plain", errors.New("bad")
	}
	return 8, "mine", &Mine{3}
}

//go:noinline
func parts(n int) (p Pair, f float32, small uint8) { return Pair{true, int32(n), 2.5}, 1.5, 200 }

//go:noinline
func large(n int) (a [2]int, b int) { return [2]int{n, n}, n }

func main() {
	fmt.Println(greet(Name("gopher and others"[:6]), []string{"a", "bb"}))
	fmt.Println(greet("", nil))
	for i := 0; i < 2; i++ {
		a, b, c := several(i)
		fmt.Println(a, b, c)
	}
	fmt.Println(sum([]int{3, -4, 5, 6, 7}, []byte("raw bytes"), nil))
	fmt.Println(sum([]int{1}, nil, errors.New("none")), halves([]float32{1.5, 2}))
	fmt.Println(holds(1), fails(nil, nil, 1), fails(&Mine{1}, Both[int, string]{}, 2))
	fmt.Println(many(1, 2, 3, 4, 5, 6, 7, 8, 9, -10, "last"))
	fmt.Println(parts(-5))
	fmt.Println(large(3))
}
"""

RUST = """
#[inline(never)]
#[no_mangle]
pub fn take(text: &str, owned: &String, n: u64) -> usize {
    std::hint::black_box((text, owned));
    text.len() + owned.len() + n as usize
}
fn main() {
    let whole = String::from("hello world");
    println!("{}", take(&whole[0..5], &whole, 1));
    println!("{}", take("", &String::new(), 2));
}
"""


class Values(harness.TestCase):
    def trace(self, program, *words):
        done = harness.run([*harness.tracer("-q", "-o", self.path("trace")), *words, "--", program])
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("trace"), encoding="latin-1") as file:
            return [hit.arguments for hit in harness.parse_trace(file.read())]

    def refusal(self, program, *words):
        done = harness.run([*harness.tracer(), *words, "--", program])
        self.assertEqual(done.returncode, 125, done.stderr)
        return done.stderr.decode()


class CPlusPlus(Values):
    def build(self, *command):
        program, source = self.path("texts"), self.write("texts.cpp", CPLUSPLUS)
        subprocess.run([*command, "-std=c++17", "-pthread", "-g", "-o", program, source], check=True)
        return program

    def check_texts(self, program):
        self.assertEqual(self.trace(program, "-p", f"p:e {program}:take s v *p"),
                         ['s="hello world" v="viewed" p="a"', 's="" v="" p="hello world"',
                          's="hello world" v="hello world" p="hello world"'])
        self.assertEqual(self.trace(program, "-p", f"p:e {program}:enter v"), ['v="wo"', 'v=""'])
        self.assertEqual(self.trace(program, "-s", "3", "-p", f"p:e {program}:take s:string")[0], 's="hel"...')
        self.assertEqual(self.trace(program, "-p", f"p:e {program}:take s", "--filter", 's == ""'), ['s=""'])
        self.assertEqual(self.trace(program, "-p", f"p:e {program}:take global")[0], 'global="of the file"')

    def check_others(self, program):
        """Of each thread its own; of each object where it lies in that one."""
        place = f"p:e {program}:texts.cpp:{HERE}"
        self.assertEqual(self.trace(program, "-p", f"{place} calls total tag[0]:u8"),
                         ["calls=1 total=101 tag=98", "calls=2 total=103 tag=99", "calls=1 total=101 tag=98"])
        self.assertEqual(self.trace(program, "-p", f"p:e {program}:take l->id l->mode of=b.id b.r"),
                         ["id=42 mode=84 of=42 r=2", "id=77 mode=154 of=42 r=2", "id=42 mode=84 of=77 r=2"])

    def test_gcc(self):
        for level in ("-O0", "-O2"):
            with self.subTest(level=level):
                program = self.build(harness.need("g++"), level)
                self.check_texts(program)
                self.check_others(program)

    def test_clang(self):
        harness.need("clang++")
        self.check_texts(self.build("clang++", "-O0", "-fstandalone-debug"))

    def test_a_length_that_lies(self):
        """Of a text that says more than can be read nothing is shown, and the program goes on."""
        source = self.write("liar.cpp", """
#include <string_view>
__attribute__((noinline)) int enter(std::string_view v) { asm volatile("" ::: "memory"); return v.size() == 3; }
int main() {
  static char page[8192] __attribute__((aligned(4096)));
  enter(std::string_view("abc", 3)), enter(std::string_view(reinterpret_cast<const char *>(16), 1ul << 60));
  return enter(std::string_view(page, ~0ul));
}
""")
        program = self.path("liar")
        subprocess.run([harness.need("g++"), "-std=c++17", "-O0", "-g", "-o", program, source], check=True)
        for option in ("4", "65535"):
            hits = self.trace(program, "-s", option, "-p", f"p:e {program}:enter v")
            self.assertEqual(hits[:2], ['v="abc"', "v=(fault)"])
            self.assertRegex(hits[2], r'^v=(\(fault\)|""(\.\.\.)?)$')

    def test_virtual_bases_that_are_refused(self):
        source = self.write("bases.cpp", """
#include <string>
struct A { int x = 1; std::string text = "a"; virtual ~A() {} };
struct B { int x = 2; virtual ~B() {} };
struct C : virtual A, virtual B { int y = 3; };
__attribute__((noinline)) int take(C *c) { asm volatile("" ::: "memory"); return c->y; }
int main() { C c; return take(&c) != 3; }
""")
        program = self.path("bases")
        subprocess.run([harness.need("g++"), "-O0", "-g", "-o", program, source], check=True)
        for variable, said in (("c->x", "member 'x' is ambiguous"), ("c->text", "'c->text' is a text in a virtual base")):
            with self.subTest(variable=variable):
                self.assertIn(said, self.refusal(program, "-p", f"p:e {program}:take {variable}"))


LIBRARY = r"""
#include <string.h>
struct pair { int n; long m; };
static __thread int calls;
static __thread struct pair own = {7, 70};
__thread long exported = 1000;
__attribute__((noinline)) int work(int n) {
  calls++, own.m += n, exported -= n;
  __asm__ volatile("" ::: "memory");  // here
  return calls;
}
"""
LIBRARY_HERE = 10
USER = r"""
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
int work(int n);
static void *run(void *step) {
  for (int i = 0; i < 2; i++) work((int)(long)step);
  return 0;
}
int main(int argc, char **argv) {
  pthread_t thread;
  printf("ready\n"), fflush(stdout);
  do {
    run((void *)1);
    pthread_create(&thread, 0, run, (void *)10);
    pthread_join(thread, 0);
    usleep(argc > 1 ? 20000 : 0);
  } while (argc > 1 && argv[1][0] == 's');
  return 0;
}
"""
OPENS = r"""
#include <dlfcn.h>
int main(int argc, char **argv) {
  int (*work)(int) = (int (*)(int))dlsym(dlopen(argv[argc - 1], RTLD_NOW), "work");
  return work(3) + work(4) != 3;
}
"""


class Libraries(Values):
    """Variables of a thread in a library, by the words of the library that its own code reads."""
    WANTED = "calls own.n own.m exported at=&calls"
    VALUES = ["calls=1 n=7 m=71 exported=999", "calls=2 n=7 m=72 exported=998",
              "calls=1 n=7 m=80 exported=990", "calls=2 n=7 m=90 exported=980"]

    def build(self, *flags, compiler="gcc"):
        self.library, self.program = self.path("libown.so"), self.path("user")
        source = self.write("own.c", LIBRARY)
        subprocess.run([compiler, "-g", "-O1", "-fPIC", "-shared", *flags, "-o", self.library, source], check=True)
        source = self.write("user.c", USER)
        subprocess.run([compiler, "-g", "-o", self.program, source, self.library, "-pthread", "-Wl,-rpath," + self.folder],
                       check=True)

    def values(self, hits):
        return [hit.split(" at=")[0] for hit in hits]

    def test_launched(self):
        harness.need("gcc")
        for flags in ((), ("-fvisibility=hidden", "-Dwork=__attribute__((visibility(\"default\")))work"),
                      ("-ftls-model=initial-exec",)):
            with self.subTest(flags=flags):
                self.build(*flags)
                hits = self.trace(self.program, "-p", f"p:e {self.library}:own.c:{LIBRARY_HERE} {self.WANTED}")
                self.assertEqual(self.values(hits), self.VALUES)
                self.assertEqual(len({hit.split(" at=")[1] for hit in hits}), 2, "each thread has its own")

    def test_attached(self):
        self.build()
        with subprocess.Popen([self.program, "stay"], stdout=subprocess.PIPE) as process:
            try:
                process.stdout.readline()
                done = harness.run([*harness.tracer("-q", "-o", self.path("trace"), "-n", "8", "-P", str(process.pid)), "-p",
                                    f"p:e {self.library}:own.c:{LIBRARY_HERE} {self.WANTED}"])
                self.assertEqual((done.returncode, done.stderr), (0, b""))
            finally:
                process.kill()
        with open(self.path("trace"), encoding="latin-1") as file:
            hits = [hit.arguments for hit in harness.parse_trace(file.read())]
        self.assertEqual(len(hits), 8)
        for hit in hits:
            calls, own, exported = re.match(r"calls=(\d+) n=7 m=(\d+) exported=(\d+) ", hit).groups()
            step = (int(own) - 70) // int(calls)
            self.assertEqual((int(own), int(exported)), (70 + step * int(calls), 1000 - step * int(calls)), hit)
            self.assertIn(step, (1, 10))

    def test_a_library_that_is_loaded_later(self):
        """What glibc gives a thread at its first use is not followed: it may be another library's that is gone. What the loader has
        fixed is."""
        for flags, wanted in (((), "calls=(missing) exported=(missing)"), (("-ftls-model=initial-exec",), "calls=1 exported=997")):
            with self.subTest(flags=flags):
                self.build(*flags)
                opens = self.path("opens")
                subprocess.run(["gcc", "-o", opens, self.write("opens.c", OPENS), "-ldl"], check=True)
                done = harness.run([*harness.tracer("-q", "-o", self.path("trace")), "-p",
                                    f"p:e {self.library}:own.c:{LIBRARY_HERE} calls exported", "--", opens, self.library])
                self.assertEqual((done.returncode, done.stderr), (0, b""))
                with open(self.path("trace"), encoding="latin-1") as file:
                    self.assertEqual(harness.parse_trace(file.read())[0].arguments, wanted)

    def test_what_is_missing_passes_no_filter(self):
        self.build()
        opens = self.path("opens")
        subprocess.run(["gcc", "-o", opens, self.write("opens.c", OPENS), "-ldl"], check=True)
        done = harness.run([*harness.tracer("-q", "-o", self.path("trace")), "-p",
                            f"p:e {self.library}:own.c:{LIBRARY_HERE} calls if calls < 100", "--", opens, self.library])
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("trace"), encoding="latin-1") as file:
            self.assertEqual(harness.parse_trace(file.read()), [])

    def test_with_musl(self):
        self.build(compiler=harness.need("musl-gcc"))
        hits = self.trace(self.program, "-p", f"p:e {self.library}:own.c:{LIBRARY_HERE} {self.WANTED}")
        self.assertEqual(self.values(hits), self.VALUES)

    def test_a_word_that_is_not_understood(self):
        self.build("-mtls-dialect=gnu2")
        self.assertIn("'calls' is a thread's own variable of a library, and no word of the library that is understood leads to it",
                      self.refusal(self.program, "-p", f"p:e {self.library}:own.c:{LIBRARY_HERE} calls"))


class Go(Values):
    def setUp(self):
        super().setUp()
        self.program = self.path("shop")
        self.write("shop.go", GO)
        built = subprocess.run([harness.need("go"), "build", "-o", self.program, "shop.go"], cwd=self.folder,
                               stderr=subprocess.PIPE, check=False)
        if built.returncode != 0:
            self.skipTest("go cannot build here: " + built.stderr.decode())

    def test_strings(self):
        self.assertEqual(self.trace(self.program, "-p", "main.greet who who.len n=tags.len"),
                         ['who="gopher" len=6 n=2', 'who="" len=0 n=0'])

    def test_slices_and_interfaces(self):
        hits = self.trace(self.program, "-p", "main.sum values.len first=values.array[0] some=values.array:s64[4] raw set=why.tab")
        self.assertEqual(hits[0], 'len=5 first=3 some={3,-4,5,6} raw="raw bytes" set=0x0')
        self.assertRegex(hits[1], r'^len=1 first=1 some=\{1,.*\} raw="" set=0x[0-9a-f]{4,}$')
        self.assertEqual(self.trace(self.program, "-p", "main.halves small.array:f32[2] small.len")[0], "array={1.5,2} len=2")
        for words, said in (("sum values", ".len is how many elements it has, .array[0] the first, .array:s64[4] the first four"),
                            ("halves small", ".array:f32[4] the first four"),
                            ("holds what", "._type is 0 where it holds nothing")):
            said_of = self.refusal(self.program, "-p", f"main.{words}")
            self.assertIn(f"'{words.split()[1]}' is a struct or union", said_of)
            self.assertIn(said, said_of)
        self.assertIn(".len is how many elements it has, .array[0] the first\n", self.refusal(self.program, "-p", "main.greet tags"))
        self.assertEqual(self.trace(self.program, "-p", "main.greet first=tags.array[0]")[0], 'first="a"')

    def test_types_of_errors(self):
        """The type that an interface holds, by its name."""
        self.assertEqual(self.trace(self.program, "-p", "main.fails why also n"),
                         ["why=0x0 also=0x0 n=1", "why=*main.Mine also=main.Both[int,string] n=2"])
        self.assertEqual(self.trace(self.program, "-p", "main.sum why")[1], "why=*errors.errorString")
        self.assertEqual(self.trace(self.program, "-r", "main.several r2"), ["r2=*errors.errorString", "r2=*main.Mine"])
        self.assertEqual(self.trace(self.program, "-p", "main.fails n why", "--filter", "why != 0"), ["n=2 why=*main.Mine"])

    def test_arguments_on_the_stack(self):
        self.assertEqual(self.trace(self.program, "-p", "main.many a i j k"), ['a=1 i=9 j=-10 k="last"'])

    def test_results(self):
        self.assertEqual(self.trace(self.program, "-r", "main.greet r0"), ['r0="hello gopher"', 'r0="hello "'])
        self.assertEqual(self.trace(self.program, "-r", "main.several r0 r1"), ['r0=7 r1="plain"', 'r0=8 r1="mine"'])
        self.assertEqual(self.trace(self.program, "-r", "main.parts p.a p.b p.f half=f small"), ["a=1 b=-5 f=2.5 half=1.5 small=200"])
        self.assertEqual(self.trace(self.program, "-r", "main.large b"), ["b=3"])

    def test_refusals(self):
        for words, said in (("main.large a", "'a' is returned on the stack"),
                            ("main.several x", "the function returns no 'x'"),
                            ("main.several x", "it returns: r0, r1, r2"),
                            ("main.main r0", "the function returns no 'r0'")):
            with self.subTest(words=words):
                self.assertIn(said, self.refusal(self.program, "-r", words))


class Rust(Values):
    def test_strings(self):
        program, source = self.path("rust"), self.write("rust.rs", RUST)
        harness.need("rustc")
        built = subprocess.run(["rustc", "-g", "-O", "-o", program, source], stderr=subprocess.PIPE, check=False)
        if built.returncode != 0:
            self.skipTest("rustc cannot build here: " + built.stderr.decode())
        self.assertEqual(self.trace(program, "-p", "take text *owned n"),
                         ['text="hello" owned="hello world" n=1', 'text="" owned="" n=2'])


if __name__ == "__main__":
    harness.main()
