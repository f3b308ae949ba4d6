# SPDX-License-Identifier: MIT
"""Return probes by the exits of a function: the program's own counts, the kernel's uretprobes, and all of libc
at once. The kernel is asked only if it can answer: it kills programs that throw through a probed function, and sees only the 64
outermost calls of a recursion.
"""
import os
import re
import subprocess
import unittest
from collections import Counter

import harness
import oracle
import program_jobs
from elf_reader import Elf

COMPILERS = ("gcc", "clang")
FUNCTIONS = ("fibonacci", "pick", "text", "half", "nothing", "popping", "last", "thrower", "between", "catcher", "leaper",
             "setter", "yields", "forks", "in_thread")
MODES = ("values", "exceptions", "jumps", "coroutines", "threads", "children", "signals")
BIG_RINGS = "-b64M"


def counted(text):
    """The program's own account: function -> (calls, returns); and the rest of its output."""
    lines = re.findall(r"(?m)^(\w+) (\d+) (\d+)$", text)
    return {name: (int(calls), int(returns)) for name, calls, returns in lines if name in FUNCTIONS}, \
        re.sub(r"(?m)^\w+ \d+ \d+\n", "", text)


def for_each_compiler(test):
    """test(self, program): once for each compiler's copy of the program."""
    def each(self):
        built = [name for name in COMPILERS if os.path.exists(os.path.join(harness.Options.fixtures or "", f"returns_{name}"))]
        if not built:
            raise unittest.SkipTest("returns was not built here")
        for name in built:
            with self.subTest(compiler=name):
                test(self, self.copy_of(harness.fixture(f"returns_{name}")))
    each.__name__, each.__doc__ = test.__name__, test.__doc__
    return each


class Counts(harness.TestCase):
    def check(self, program, mode):
        definitions = [f"{kind}:{kind}_{name} {program}:{name}" for name in FUNCTIONS for kind in "pr"]
        alone = harness.run([program, mode])
        seen = harness.run_tool(definitions, [program, mode], [BIG_RINGS])
        self.assertEqual(seen.returncode, 7, seen.stderr)
        own, printed = counted(seen.stdout.decode())
        self.assertEqual(printed, counted(alone.stdout.decode())[1])
        hits = seen.counts()
        for name, (calls, returns) in own.items():
            self.assertEqual((hits.get(f"p_{name}", 0), hits.get(f"r_{name}", 0)), (calls, returns), name)
        self.assertGreater(len(own), 0)


def add_modes():
    for mode in MODES:
        def test(self, program, mode=mode):
            self.check(program, mode)
        setattr(Counts, f"test_{mode}", for_each_compiler(test))


class Values(harness.TestCase):
    @for_each_compiler
    def test_what_is_fetched_is_what_was_returned(self, program):
        definitions = [f"r:pick {program}:pick v=$retval:s32", f"r:text {program}:text v=+0($retval):string",
                       f"r:popping {program}:popping v=$retval:s64 $stack",
                       f"p:at {program}:popping $stack"]
        seen = harness.run_tool(definitions, [program, "values"])
        self.assertEqual(seen.returncode, 7, seen.stderr)
        values = {name: [hit.arguments for hit in seen.hits if hit.event == name] for name in ("pick", "text")}
        picks = [(10, -20, 30, n * 40, 50, n, n)[n % 7] for n in range(40)]
        self.assertEqual(values["pick"], [f"v={value}" for value in picks])
        self.assertEqual(values["text"], [f'v="text-{n}"' for n in range(40)])
        pairs = [hit.arguments.split() for hit in seen.hits if hit.event in ("at", "popping")]
        for n, (at, popping) in enumerate(zip(pairs[::2], pairs[1::2])):
            self.assertEqual(popping[0], f"v={n + 7 + 1100}")
            self.assertEqual(int(popping[1].partition("=")[2], 16) - int(at[0].partition("=")[2], 16), 24)

    @for_each_compiler
    def test_entry_and_return_at_one_instruction(self, program):
        """A function that consists of its return: entry first, newest first, each with its own registers."""
        definitions = [f"p:a {program}:nothing $stack", f"r:b {program}:nothing $stack",
                       f"p:c {program}:nothing $stack", f"r:d {program}:nothing $stack %ip"]
        seen = harness.run_tool(definitions, [program, "values"])
        self.assertEqual([hit.event for hit in seen.hits], ["c", "a", "d", "b"] * 40)
        stacks = [int(re.search(r"arg1=(0x[0-9a-f]+)", hit.arguments)[1], 16) for hit in seen.hits]
        for c, a, d, b in zip(*(stacks[i::4] for i in range(4))):
            self.assertEqual((c, d, b), (a, a + 8, a + 8))
        for hit in seen.hits:
            if hit.event == "d":
                self.assertIn(f"arg2={hit.address:#x}", hit.arguments)

    @for_each_compiler
    def test_a_tail_jump_is_an_exit_for_those_who_fetch_nothing(self, program):
        seen = harness.run_tool([f"r:e {program}:ends_in_last", f"r:l {program}:last $retval:s32"], [program, "values"])
        self.assertEqual(seen.counts(), {"e": 40, "l": 40}, seen.stderr)
        places = [hit.rest.partition(" <- ")[0] for hit in seen.hits]
        self.assertEqual(places[::2], places[1::2], "both return to the caller")
        refused = harness.run_tool([f"r:e {program}:ends_in_last $retval"], [program, "values"])
        self.assertEqual((refused.returncode, refused.stdout), (125, b""))
        self.assertIn(b"in another function, which returns for it", refused.stderr)


class Entries(harness.TestCase):
    """The arguments of a call, shown with its return value: never another call's."""

    # mode -> function, and what it returns for its argument
    MODES = {"values": [("fibonacci", None)], "exceptions": [("thrower", int)], "coroutines": [("yields", int)],
             "threads": [("fibonacci", None), ("in_thread", int)], "signals": [("fibonacci", None)],
             "jumps": [("leaper", int)]}

    @staticmethod
    def fibonacci(n):
        a, b = 0, 1
        for _ in range(n):
            a, b = b, a + b
        return a

    @for_each_compiler
    def test_they_belong_to_the_value(self, program):
        for mode, functions in self.MODES.items():
            definitions = [f"r:{name} {program}:{name} n=$entry_arg1:s32 v=$retval:s32 lat=$latency"
                           for name, _ in functions]
            seen = harness.run_tool(definitions, [program, mode], [BIG_RINGS])
            self.assertEqual(seen.returncode, 7, seen.stderr)
            for name, result in functions:
                hits = [hit.arguments for hit in seen.hits if hit.event == name]
                self.assertGreater(len(hits), 0, (mode, name))
                known = [re.fullmatch(r"n=(-?\d+) v=(-?\d+) lat=(\d+)", text) for text in hits]
                self.assertGreater(sum(map(bool, known)), len(hits) * 9 // 10, (mode, name))
                for text, match in zip(hits, known):
                    if not match:
                        self.assertRegex(text, r"n=\(missing\) v=-?\d+ lat=\(missing\)")
                        continue
                    given, returned, latency = map(int, match.groups())
                    self.assertEqual(returned, (result or self.fibonacci)(given), (mode, name, text))
                    self.assertLess(latency, 60_000_000_000)

    @for_each_compiler
    def test_memory_then_and_now(self, program):
        definitions = [f"r:e {program}:text given=entry(%di):s32 again=$entry_arg1:u8 +0($retval):string",
                       f"r:p {program}:popping a=entry(+8(%sp)):s64 b=entry(+16(%sp)):s64 sp=entry(%sp) $stack"]
        seen = harness.run_tool(definitions, [program, "values"])
        self.assertEqual(seen.returncode, 7, seen.stderr)
        self.assertEqual([hit.arguments for hit in seen.hits if hit.event == "e"],
                         [f'given={n} again={n} arg3="text-{n}"' for n in range(40)])
        for hit in seen.hits:
            if hit.event == "p":
                match = re.fullmatch(r"a=1000 b=100 sp=(\S+) arg4=(\S+)", hit.arguments)
                self.assertEqual(int(match[2], 16) - int(match[1], 16), 24, hit.arguments)

    @for_each_compiler
    def test_who_returns_twice_was_called_once(self, program):
        seen = harness.run_tool([f"r:e {program}:setter n=$entry_arg1:s32 v=$retval:s32"], [program, "jumps"])
        self.assertEqual(seen.returncode, 7, seen.stderr)
        self.assertGreater(len(seen.hits), 0)
        for hit in seen.hits:
            self.assertRegex(hit.arguments, r"n=(-?\d+|\(missing\)) v=-?\d+")


class Memory(harness.TestCase):
    """No entry record of calls that exceptions and longjmp have left is used."""

    def test_throws_and_longjmps_leave_none(self):
        compiler = harness.need("g++")
        source, program = self.write("throws.cpp", program_jobs.THROWS), self.path("throws")
        subprocess.run([compiler, "-O2", "-pthread", "-o", program, source], check=True)
        alone = harness.run([program, "30000"])
        self.assertTrue(alone.stdout.endswith(b" flat\n"), alone.stdout)
        for arguments, way in (("", "exits"), (" $latency $entry_arg1", "exits"), ("", "stub")):
            definitions = [f"p:in/* {program}:*dive*", f"p:in/* {program}:*leap*", f"r:out/* {program}:*dive*{arguments}",
                           f"r:out/* {program}:*again*{arguments}"]
            seen = harness.run_tool(definitions, [program, "30000"], ["-b8M", f"--return={way}", "-o", "/dev/null"])
            self.assertEqual((seen.returncode, seen.stdout), (0, alone.stdout), (way, seen.stderr[-2000:]))
            self.assertRegex(seen.stderr, rb"out/\S*dive\S* .*: [1-9]")


class Patterns(harness.TestCase):
    @for_each_compiler
    def test_functions_whose_returns_cannot_be_had_are_left_out(self, program):
        seen = harness.run_tool([f"r:g/* {program}:*last $retval:s32"], [program, "values"])
        self.assertEqual(seen.returncode, 7, seen.stderr)
        self.assertEqual(seen.counts(), {"last": 40})
        self.assertRegex(seen.stderr, rb"1 of 2 functions of '\*last' in \S+ cannot be probed: 'ends_in_last' ends at")
        seen = harness.run_tool([f"r:g/* {program}:*last"], [program, "values"])
        self.assertEqual(seen.counts(), {"last": 40, "ends_in_last": 40}, seen.stderr)
        seen = harness.run_tool([f"r:g/* {program}:end*_last $retval"], [program, "values"])
        self.assertEqual((seen.returncode, seen.stdout), (125, b""))
        self.assertIn(b"can be probed: 'ends_in_last' ends at", seen.stderr)


class Differential(harness.TestCase):
    """The same definitions under the kernel's uretprobes."""

    def check(self, program, mode, definitions, ordered=False, more=()):
        oracle.require()
        mine, command = [text.format(program) for text in definitions], [program, mode, *more]
        kernel = oracle.run_kernel(mine, command, randomise=False)
        ours = harness.run_tool(mine, command, [BIG_RINGS], randomise=False)
        self.assertEqual((ours.returncode, ours.stdout), (kernel.returncode, kernel.stdout), ours.stderr)
        self.assertEqual(ours.counts(), kernel.counts())
        records = [[f"{hit.event}: {hit.rest}" for hit in seen.hits] for seen in (kernel, ours)]
        self.assertEqual(Counter(records[0]), Counter(records[1]))
        self.assertGreater(len(records[0]), 0)
        if ordered:
            self.assertEqual(records[0], records[1])


class Kernel(Differential):
    @for_each_compiler
    def test_values(self, program):
        self.check(program, "values", ["r:pick {0}:pick v=$retval:s32 sp=$stack ip=%ip b=%bx w=$stack0",
                                       "r:text {0}:text v=+0($retval):string $comm",
                                       "r:popping {0}:popping v=$retval sp=$stack",
                                       "p:nothing {0}:nothing%return %sp", "p:enter {0}:pick %di:s32",
                                       "r:half {0}:half f=@+0:x8[4]"], ordered=True)

    @for_each_compiler
    def test_recursion(self, program):
        self.check(program, "values", ["p:e {0}:fibonacci n=%di:s64 %sp", "r:r {0}:fibonacci v=$retval:s64 %sp"],
                   ordered=True)

    @for_each_compiler
    def test_threads(self, program):
        self.check(program, "threads", ["r:f {0}:fibonacci v=$retval:s64", "r:p {0}:pick v=$retval:s32"])

    @for_each_compiler
    def test_children(self, program):
        self.check(program, "children", ["r:f {0}:forks v=$retval:b1@31/32", "r:p {0}:pick v=$retval:s32"])

    @for_each_compiler
    def test_several_at_one_function(self, program):
        self.check(program, "values", ["r:a {0}:pick $retval:s32", "p:b {0}:pick", "r:c {0}:pick", "r:d {0}:pick $retval:u8"],
                   ordered=True)


class RealPrograms(Differential):
    def test_zsh(self):
        zsh = self.copy_of(harness.need("zsh"))
        functions = ("assignsparam", "unsetparam_pm", "ztrdup", "zalloc", "execlist", "zhalloc", "hasher", "getsparam",
                     "bin_print", "gethashnode2", "dupstring")
        elf = Elf(zsh)
        functions = [name for name in functions if name in elf.symbols]
        self.assertGreater(len(functions), 5)
        job = "for i in {1..50}; do a=$i; unset a; print $i; done; f() { return 3 }; f; typeset -A t; t[a]=1; print ${t[a]}"
        # of pointers into mappings the place in the page: the agent takes some room too
        self.check(zsh, "-fc", [f"r:{name} {{0}}:{name} v=$retval:b12@0/32 sp=%sp" for name in functions], more=[job])


class WithoutUnwindInformation(Differential):
    """Assembly functions whose symbols give their ends."""

    FUNCTIONS = ("bare_sum", "bare_sign", "bare_applies", "bare_pops")
    # mode -> function -> (calls, returns)
    EXPECTED = {"values": {"bare_sum": (210, 210), "bare_sign": (82, 82), "bare_pops": (41, 41)},
                "nested": {"bare_sum": (120, 120), "bare_applies": (31, 31)},
                "jumps": {"bare_applies": (100, 50)},
                "threads": {"bare_sum": (22000, 22000)}}

    def run_mode(self, mode):
        program = self.copy_of(harness.fixture("bare"))
        alone = harness.run([program, mode])
        definitions = [f"{kind}:{kind}_{name} {program}:{name}{' v=$retval:s64 n=$entry_arg1:s64' if kind == 'r' else ''}"
                       for name in self.FUNCTIONS for kind in "pr"]
        seen = harness.run_tool(definitions, [program, mode], [BIG_RINGS, "--return=exits"])
        self.assertEqual((seen.returncode, seen.stdout), (alone.returncode, alone.stdout), seen.stderr)
        return seen

    def test_counts(self):
        for mode, expected in self.EXPECTED.items():
            with self.subTest(mode):
                hits = self.run_mode(mode).counts()
                found = {name: (hits.get(f"p_{name}", 0), hits.get(f"r_{name}", 0)) for name in self.FUNCTIONS}
                self.assertEqual(found, {name: expected.get(name, (0, 0)) for name in self.FUNCTIONS})

    def test_what_is_returned_belongs_to_what_was_given(self):
        for hit in self.run_mode("values").hits:
            if hit.event in ("r_bare_sum", "r_bare_sign"):
                value, given = map(int, re.fullmatch(r"v=(-?\d+) n=(-?\d+)", hit.arguments).groups())
                self.assertEqual(value, given * (given + 1) // 2 if hit.event == "r_bare_sum" else (given > 0) - (given < 0))

    def test_signals_in_between(self):
        hits = self.run_mode("signals").counts()
        for name in ("bare_sum", "bare_sign"):
            self.assertEqual(hits[f"p_{name}"], hits[f"r_{name}"])
            self.assertGreater(hits[f"r_{name}"], 199)

    def test_the_kernel_sees_the_same(self):
        program = self.copy_of(harness.fixture("bare"))
        for mode in ("values", "nested"):
            with self.subTest(mode):
                self.check(program, mode, [f"{kind}:{kind}_{name} {{0}}:{name} v=%ax:s64 sp=%sp" for name in
                                           ("bare_sum", "bare_sign", "bare_applies", "bare_pops") for kind in "pr"], ordered=True)

    def test_refused_where_it_leads_out(self):
        program = self.copy_of(harness.fixture("bare"))
        for name, why in (("bare_leads_on", rb"a jump that leaves it"), ("bare_pushes", rb"a return instruction that is none of a call")):
            seen = harness.run_tool([f"r:e {program}:{name}"], [program], ["--return=exits"])
            self.assertEqual((seen.returncode, seen.stdout), (125, b""))
            self.assertRegex(seen.stderr, rb"'%s' has no unwind information, and at 0x[0-9a-f]+ %s" % (name.encode(), why))

    def test_a_library_of_such_functions(self):
        """GMP's, those of them that run on this machine against the kernel."""
        library = "/usr/lib/x86_64-linux-gnu/libgmp.so.10"
        compiler = harness.need("gcc")
        if not os.path.exists(library):
            self.skipTest("no GMP here")
        source, program = self.write("numbers.c", GMP), self.path("numbers")
        subprocess.run([compiler, "-O1", "-o", program, source, library], check=True)
        names = [name for name in ("add_n", "sub_n", "com", "lshift", "rshift", "copyi", "copyd", "popcount", "hamdist",
                                   "mul_1", "addmul_1", "submul_1", "cnd_add_n", "and_n", "xor_n", "divexact_1")
                 if self.has_exits(f"{library}:__gmpn_{name}")]
        self.assertGreater(len(names), 5)
        oracle.require()
        definitions = [f"{kind}:{kind}_{name} {library}:__gmpn_{name} s=%sp{' v=$retval' if kind == 'r' else ''}"
                       for name in names for kind in "pr"]
        seen = [run(definitions, [program], *options, randomise=False) for run, *options in
                ((oracle.run_kernel,), (harness.run_tool, [BIG_RINGS, "--return=exits"]))]
        records = [[(hit.event, hit.arguments) for hit in one.hits] for one in seen]
        self.assertGreater(len(records[0]), 100)
        self.assertEqual(*records)
        self.assertEqual(*[one.stdout for one in seen])

    def has_exits(self, place):
        return harness.run([harness.tool(), "--dry-run", "--return=exits", "-p", f"r {place}"]).returncode == 0


GMP = """
typedef unsigned long limb;
#define N(name) __gmpn_##name
limb N(add_n)(limb*, const limb*, const limb*, long), N(sub_n)(limb*, const limb*, const limb*, long);
limb N(lshift)(limb*, const limb*, long, unsigned), N(rshift)(limb*, const limb*, long, unsigned);
limb N(mul_1)(limb*, const limb*, long, limb), N(addmul_1)(limb*, const limb*, long, limb);
limb N(submul_1)(limb*, const limb*, long, limb), N(popcount)(const limb*, long), N(hamdist)(const limb*, const limb*, long);
void N(copyi)(limb*, const limb*, long), N(copyd)(limb*, const limb*, long), N(com)(limb*, const limb*, long);
void N(and_n)(limb*, const limb*, const limb*, long), N(xor_n)(limb*, const limb*, const limb*, long);
limb N(cnd_add_n)(limb, limb*, const limb*, const limb*, long);
int printf(const char*, ...);
int main(void) {
  limb a[20], b[20], c[24], sum = 0;
  for (int i = 0; i < 20; ++i) a[i] = i * 0x9e3779b97f4a7c15ul, b[i] = ~a[i] >> (i % 7);
  for (long n = 1; n < 20; ++n) {
    sum += N(add_n)(c, a, b, n) + N(sub_n)(c, c, b, n) + N(lshift)(c, c, n, 5) + N(rshift)(c, a, n, 9);
    sum += N(mul_1)(c, a, n, 77) + N(addmul_1)(c, b, n, 99) + N(submul_1)(c, a, n, 3) + N(popcount)(c, n) + N(hamdist)(a, c, n);
    N(copyi)(c, a, n), N(copyd)(c, b, n), N(com)(c, c, n), N(and_n)(c, c, a, n), N(xor_n)(c, c, b, n);
    sum += N(cnd_add_n)(1, c, a, b, n) + c[n - 1];
  }
  printf("%lu\\n", sum);
  return 7;
}
"""

GO = """package main
import ("errors"; "fmt"; "os"; "runtime"; "sync"; "sync/atomic")
var abandoned int64
//go:noinline
func fib(n int) int { if n < 2 { return n }; return fib(n-1) + fib(n-2) }
//go:noinline
func deep(n int) int { var a [64]int; a[n%64] = n; if n == 0 { return a[0] }; return deep(n-1) + a[n%64] - n + 1 }
//go:noinline
func div(a, b int) (int, error) { if b == 0 { return 0, errors.New("zero") }; return a / b, nil }
//go:noinline
func fails(n int) int { if n == 3 { atomic.AddInt64(&abandoned, 1); panic("three") }; return n }
//go:noinline
func safe(n int) (r int) { defer func() { if recover() != nil { r = -1 } }(); return fails(n) }
func main() {
  var all sync.WaitGroup
  for g := 0; g < 20; g++ {
    all.Add(1)
    go func() {
      defer all.Done()
      for i := 0; i < 10; i++ { deep(500); fib(8); runtime.Gosched(); safe(i); div(i, i%3) }
    }()
  }
  all.Wait()
  fmt.Println(fib(12), deep(3000), abandoned)
  os.Exit(7)
}
"""


class Go(harness.TestCase):
    """Stacks that grow and move with returns on them, goroutines that go on in other threads, panics."""

    def test_returns(self):
        harness.need("go")
        program = self.path("returns")
        environment = {**os.environ, "GOCACHE": self.path("cache"), "GO111MODULE": "off"}
        subprocess.run(["go", "build", "-o", program, self.write("returns.go", GO)], env=environment, check=True)
        calls = {"fib": 20 * 10 * 67 + 465, "deep": 200 * 501 + 3001, "div": 200, "fails": 180, "safe": 200}
        seen = harness.run_tool([f"r:{name} {program}:main.{name} v=$retval:s64" for name in calls], [program],
                                [BIG_RINGS], env={**os.environ, "GOGC": "1"})
        self.assertEqual((seen.returncode, seen.stdout), (7, b"144 3000 20\n"), seen.stderr)
        self.assertEqual(seen.counts(), calls)
        for name, value in (("fib", "v=144"), ("deep", "v=3000")):
            self.assertEqual([hit.arguments for hit in seen.hits if hit.event == name][-1], value)
        self.assertEqual(sum(hit.event == "safe" and hit.arguments == "v=-1" for hit in seen.hits), 20)


class Preloaded(harness.TestCase):
    @for_each_compiler
    def test_mode_by_variable(self, program):
        output = self.path("trace")
        environment = harness.preloaded(UPROBE_PROBES=f"r:r {program}:pick $retval:s32", UPROBE_OUTPUT=output,
                                        UPROBE_RETURN="exits")
        seen = harness.run([program, "values"], env={**os.environ, **environment})
        self.assertEqual(seen.returncode, 7, seen.stderr)
        with open(output, encoding="latin-1") as file:
            self.assertEqual(len(harness.parse_trace(file.read())), 40)
        os.remove(output)
        environment["UPROBE_RETURN"] = "somehow"
        seen = harness.run([program, "values"], env={**os.environ, **environment})
        self.assertEqual(seen.returncode, 7)
        self.assertIn(b"UPROBE_RETURN: 'somehow' is not one of auto, stub, exits", seen.stderr)


class Libc(harness.TestCase):
    JOB = """
for i in 1 2 3; do echo "line $i" | sed s/line/LINE/; done
ls /etc | sort | head -5 | awk '{ print length($0), $1 }'
find /etc -maxdepth 1 -name 'h*' | sort | xargs cat | cksum
( trap 'echo caught' USR1; kill -USR1 $BASHPID; wait ); printf '%s\\n' {1..200} | tac | md5sum
exit 7"""

    def places(self, file):
        """[offset, "tail"?] of every function whose exits are known."""
        lister = os.path.join(harness.Options.fixtures or "", "../../plan/exits_list")
        if not os.path.exists(lister):
            raise unittest.SkipTest("exits_list is not built")
        found = [line.split() for line in subprocess.check_output([lister, file], text=True).splitlines()]
        self.assertGreater(len(found), 1000)
        return found

    def definitions(self, file, places):
        return self.write("all", "".join(f"p:p{i} {file}:{place}\nr:r{i} {file}:{place}{'' if tail else ' v=$retval'}\n"
                                         for i, (place, *tail) in enumerate(places)))

    def test_under_a_shell(self):
        bash = harness.need("bash")
        libc = harness.libc_of(bash)
        places = self.places(libc)
        alone = harness.run([bash, "-c", self.JOB])
        seen = harness.run_tool([], [bash, "-c", self.JOB], ["-i", self.definitions(libc, places), BIG_RINGS])
        self.assertEqual((seen.returncode, seen.stdout), (7, alone.stdout), seen.stderr[-2000:])
        self.assertEqual(seen.stderr.count(b"not probed"), 0)
        hits = seen.counts()
        called = [i for i in range(len(places)) if f"p{i}" in hits]
        unequal = [i for i in called if hits.get(f"r{i}", 0) != hits[f"p{i}"]]
        self.assertGreater(len(called), 200)
        # execve, _exit, fork (twice), and what a longjmp leaves
        self.assertLessEqual(len(unequal), 12, [(places[i], hits[f"p{i}"], hits.get(f"r{i}", 0)) for i in unequal])

    def test_where_functions_do_not_return(self):
        """longjmp, cancellation, children, libraries that fail to load; in a libc of its own as well."""
        for name in ("libc_cases", "libc_cases_static"):
            program = harness.fixture(name)
            file = harness.libc_of(program) if name == "libc_cases" else program
            definitions = self.definitions(file, self.places(file))
            modes = ("jumps", "cancelling", "loading", "processes", "spawning", "threads", "signals_killing")
            for mode in modes if harness.LONG else modes[:3]:
                with self.subTest(program=name, mode=mode):
                    alone = harness.run([program, mode])
                    seen = harness.run_tool([], [program, mode], ["-i", definitions, BIG_RINGS])
                    self.assertEqual((seen.returncode, seen.stdout), (alone.returncode, alone.stdout), seen.stderr[-2000:])
                    self.assertGreater(len(seen.hits), 100)


add_modes()
harness.Options.returns = "exits"
if __name__ == "__main__":
    harness.main()
