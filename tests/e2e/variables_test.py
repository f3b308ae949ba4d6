# SPDX-License-Identifier: MIT
"""Variables compared with gdb at the same instruction, in code of several compilers and levels: the tool prints the same values, and
no value where gdb has none."""
import json
import os
import re
import shutil
import subprocess

import harness

WANTED = {
    "by_value": "t.a t.b w.a w.b s.c s.s s.h s.i e.i e.low e.high e.bytes[1] r &t &w.b",
    "with_bits": "b.n b.u b.m b.far b.tiny b.flag p->n p->u p->m p->far p->tiny p->flag copy.n copy.u copy.m copy.far copy.tiny &copy p",
    "split": "w.a w.b t.a t.b p.text[0] p.next i n name &w name[1] &name[2] *p.text",
    "addresses": "middle *middle inside inside->b &array &array[2] &local.in.t.b &local.bits &o->in.s[1] o &o->tail[3] local.bits.m "
                 "local.in.s[1] &middle array[5] &global.in.t.b hidden[2] &hidden[1] &n local.tail[2] &*middle &middle[1]",
    "floating": "m.n m.d f.x f.y d",
    "constants": "n word large largest below least",
}
FLOATING = ("m.d", "f.x", "f.y", "d")
# What gdb is asked at a place: the registers that addresses are told from, and each expression; a value in several words, "<optimized
# out>" and the like are none.
ASK = """
import gdb
def ask(number, expression, form):
    try:
        text = gdb.execute("output" + form + " " + expression, False, True)
    except gdb.error:
        text = "<"
    print("V", number, "-" if "<" in text or "{" in text else text)
"""


def whole(text):
    """A number as its 64 bits."""
    return (ord(text[1:-1]) if text.startswith("'") else int(text, 0)) % 2**64


class AgainstGdb(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.tool()
        self.gdb = harness.need("gdb")
        self.source = os.path.join(harness.Options.source, "tests/e2e/fixtures/variables.c")
        self.program = self.path("variables")

    def build(self, compiler, flags):
        subprocess.run([compiler, *flags.split(), "-g", "-w", "-no-pie", "-o", self.program, self.source], check=True,
                       cwd=self.folder)  # where clang puts what it splits off

    def ask(self, *words):
        return subprocess.run([*harness.tracer(*words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=harness.TIMEOUT, check=False)

    def places(self):
        """(file offset, function) of each line that is marked."""
        function, found = "", []
        with open(self.source, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                function = (re.match(r"KEPT \w+ (\w+)\(", line) or [None, function])[1]
                if "// here" in line:
                    listing = self.ask("--list-events", "-p", f"p:e {self.program}:variables.c:{number}").stdout.decode()
                    found += [(int(offset, 16), function) for offset in re.findall(r":0x([0-9a-f]+)", listing)]
        return sorted(set(found))

    def by_gdb(self, places):
        """offset -> (stack pointer, values)"""
        base = 0x400000  # of programs that are not position independent
        lines = ["set pagination off", "set confirm off", "set width 0", "python", *ASK.splitlines(), "end"]
        for offset, function in places:
            lines += [f"tbreak *{base + offset:#x}", "commands", "silent", f'printf "@ {offset} %lx\\n",(long)$sp']
            for number, expression in enumerate(WANTED[function].split()):
                lines.append(f"python ask({number}, '{expression}', '{'' if expression in FLOATING else '/d'}')")
            lines += ["continue", "end"]
        script = self.write("script.gdb", "\n".join([*lines, "run > /dev/null"]))
        text = subprocess.run([self.gdb, "-nx", "-q", "-batch", "-x", script, self.program], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=harness.TIMEOUT, check=False).stdout.decode("latin-1")
        seen, values = {}, []
        for kind, first, second in re.findall(r"(?m)^([@V]) (\d+) (\S+)$", text):
            if kind == "@":
                values = []
                seen[int(first)] = (int(second, 16), values)
            else:
                values.append(second)
        return seen

    def by_tool(self, places):
        """The same, as far as it is not refused."""
        wanted = [f"p:g/e{offset}_{number} {self.program}:{offset:#x} sp=%sp v={expression}\n" for offset, function in places
                  for number, expression in enumerate(WANTED[function].split())]
        done = harness.run([*harness.tracer("-q", "--skip-refused", "-o", self.path("trace"), "-i", self.write("list", "".join(wanted))),
                            "--", self.program])
        self.assertEqual(done.returncode, 0, done.stderr)
        skipped, = re.findall(rb"^uprobe-run: (\d+) of %d definitions skipped$" % len(wanted), done.stderr, re.M) or (b"0",)
        seen = {}
        with open(self.path("trace"), encoding="latin-1") as file:
            for offset, number, sp, value in re.findall(r": e(\d+)_(\d+): \(0x\w+\) sp=(0x\w+) v=(.*)", file.read()):
                seen.setdefault((int(offset), int(number)), (int(sp, 16), value))
        self.assertEqual(len(seen), len(wanted) - int(skipped))
        return seen

    def check(self, compiler, flags, least):
        self.build(compiler, flags)
        places = self.places()
        asked, taken = self.by_gdb(places), self.by_tool(places)
        self.assertEqual(set(asked), {offset for offset, _ in places})
        equal = 0
        for (offset, number), (sp, value) in taken.items():
            expression = WANTED[dict(places)[offset]].split()[number]
            there, expected = asked[offset][0], asked[offset][1][number]
            with self.subTest(compiler=compiler, flags=flags, at=hex(offset), expression=expression):
                self.assertNotEqual(expected, "-", f"there is none: {value}")
                if value.startswith('"'):
                    continue
                if expression in FLOATING:
                    self.assertEqual(float(value), float(expected))
                elif abs(whole(expected) - there) < 1 << 20:  # on the stack, which is not where it is under gdb
                    self.assertEqual(whole(value) - sp, whole(expected) - there)
                else:
                    self.assertEqual(whole(value), whole(expected))
                equal += 1
        self.assertGreaterEqual(equal, least)

    def test_gcc(self):
        self.check(harness.need("gcc"), "-O0", 180)
        self.check(harness.need("gcc"), "-O2", 100)

    def test_clang(self):
        compiler = next(filter(None, map(shutil.which, ("clang", "clang-14"))), None)
        if compiler is None:
            self.skipTest("clang is not installed")
        self.check(compiler, "-O0", 180)
        self.check(compiler, "-O2", 90)

    def test_older_formats(self):
        self.check(harness.need("gcc"), "-O1 -gdwarf-3", 120)

    def test_in_files_of_their_own(self):
        self.check(harness.need("gcc"), "-O1 -gsplit-dwarf", 120)
        clang = next(filter(None, map(shutil.which, ("clang", "clang-14"))), None)
        if clang:
            self.check(clang, "-O0 -gdwarf-5 -gsplit-dwarf", 180)


LAMBDA = """
int main(int argc, char **) {
  int outside = argc + 1, kept = 40;
  auto add = [&kept](int n) {
    int sum = n + kept;
    return sum;
  };
  return add(outside) == 42 ? 0 : 1;
}
"""


class Nested(harness.TestCase):
    def test_a_lambda_has_its_own_variables_alone(self):
        program, source = self.path("lambda"), self.write("lambda.cpp", LAMBDA)
        subprocess.run([harness.need("g++"), "-O0", "-g", "-o", program, source], check=True)
        place = f"{program}:main::{{lambda(int)#1}}::operator()"
        listed = harness.run([harness.tool(), "--vars=main::{lambda(int)#1}::operator()", program])
        self.assertRegex(listed.stdout.decode(), r"\Ap:\S+ \S+ sum __closure n kept\n")
        done = harness.run([*harness.tracer("-q", "-o", self.path("trace"), "-p", f"p:e {place} n kept", "-p",
                                            "p:line lambda.cpp:6 sum n"), "--", program])
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        with open(self.path("trace"), encoding="latin-1") as file:
            self.assertEqual(re.findall(r": (\w+: )\(0x\w+\) (.*)", file.read()), [("e: ", "n=2 kept=40"), ("line: ", "sum=42 n=2")])
        refused = harness.run([harness.tool(), "--check", "-p", f"p {place} outside"])
        self.assertIn(b"no variable 'outside' here", refused.stderr)


REFERENCES = """
enum Fruit { apple, pear = 3 };
struct Basket { int weight; };
__attribute__((noinline)) int take(int &n, const short &small, Fruit &fruit, const char *&name, int (&two)[2], Basket &basket, double &&d) {
  return n + small + fruit + name[0] + two[1] + basket.weight + static_cast<int>(d);
}
int main() {
  int n = -5, two[2] = {8, 9};
  short small = -2;
  Fruit fruit = pear;
  const char *name = "plum";
  Basket basket = {7};
  return take(n, small, fruit, name, two, basket, 1.5) == 0;
}
"""


class References(harness.TestCase):
    def test_they_are_what_they_refer_to(self):
        program, source = self.path("references"), self.write("references.cpp", REFERENCES)
        for flags in (["-O0"], ["-O1"], ["-O1", "-gdwarf-4"]):
            subprocess.run([harness.need("g++"), *flags, "-g", "-o", program, source], check=True)
            done = harness.run([*harness.tracer("-q", "-o", self.path("trace"), "-p",
                                                f"p:e {program}:take n small fruit name two d basket.weight low=n:u8 chars=name:string "
                                                "bytes=n:x8[4] at=&n same=&n b=basket"), "--", program])
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            with open(self.path("trace"), encoding="latin-1") as file:
                self.assertRegex(file.read(), r'n=-5 small=-2 fruit=3 name="plum" two=\{8,9\} d=1.5 weight=7 low=251 chars="plum" '
                                              r"bytes=\{0xfb,0xff,0xff,0xff\} at=(0x[0-9a-f]+) same=\1 b=0x[0-9a-f]+\n")


OTHERS = """
struct Base { int low; virtual ~Base() {} };
struct Left : virtual Base { int left; };
struct Small { unsigned flag : 3, rest : 5; };
static thread_local int own = 3;
__attribute__((noinline)) int take(Left *l, __int128 *wide, Small *s, const __int128 &ref) {
  return l->left + static_cast<int>(*wide) + s->flag + static_cast<int>(ref) + ++own;
}
int main() {
  Left l;
  l.left = 2;
  __int128 wide = (static_cast<__int128>(5) << 64) + 7;
  Small s = {5, 9};
  return take(&l, &wide, &s, wide) == 0;
}
"""


class Others(harness.TestCase):
    def test_wide_numbers_bitfields_and_what_has_no_fixed_place(self):
        program, source = self.path("others"), self.write("others.cpp", OTHERS)
        subprocess.run([harness.need("g++"), "-O0", "-g", "-o", program, source], check=True)
        done = harness.run([*harness.tracer("-q", "-o", self.path("trace"), "-p",
                                            f"p:e {program}:take l->left *wide:x64[2] ref:u64[2] s->flag s->rest"), "--", program])
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        with open(self.path("trace"), encoding="latin-1") as file:
            self.assertRegex(file.read(), r"left=2 wide=\{0x7,0x5\} ref=\{7,5\} flag=5 rest=9\n")
        for variable, said in (("*wide:u8[17]", "'*wide' has only 16 bytes"),
                               ("*s", "'*s' is a struct or union")):
            with self.subTest(variable=variable):
                refused = harness.run([harness.tool(), "--check", "-p", f"p:e {program}:take {variable}"])
                self.assertIn(f"-p: {said}\n", refused.stderr.decode())


SCOPES = """
int top = 7;
namespace a { int of_space = 1; int other = 3; }
namespace b { int of_space = 2; __attribute__((noinline)) int f(int n) { asm volatile(""); return n + of_space; } }
struct P { static int count; int n; };
int P::count = 10;
struct Q { static int count; int n; __attribute__((noinline)) int g(int k) { asm volatile(""); return k + n + count; } };
int Q::count = 20;
int table[2][3] = {{1, 2, 3}, {4, 5, 6}};
__attribute__((noinline)) int take(const P *p, const Q *q) { asm volatile(""); return p->n + q->n + table[1][2]; }
int main() { P p{1}; Q q{2}; return b::f(3) + q.g(4) + a::of_space + a::other + P::count + top + take(&p, &q) == 0; }
"""


class Scopes(harness.TestCase):
    """Variables of namespaces and classes are not taken for others of their name."""

    def check(self, compiler, *flags):
        program = self.path("scopes")
        subprocess.run([harness.need(compiler), "-O1", "-g", *flags, "-o", program, self.write("scopes.cpp", SCOPES)], check=True)
        done = harness.run([*harness.tracer("-q", "-o", self.path("trace"), "-p", f"p:f {program}:b::f n top", "-p", f"p:g {program}:Q::g k count",
                                            "-p", f"p:t {program}:take p->n q->n table:s32[6]"), "--", program])
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        with open(self.path("trace"), encoding="latin-1") as file:
            text = file.read()
        for values in (r"f: \(0x\w+\) n=3 top=7\n", r"g: \(0x\w+\) k=4 count=20\n", r"t: \(0x\w+\) n=1 \w+=2 table=\{1,2,3,4,5,6\}\n"):
            self.assertRegex(text, values)
        for definition, said in (("b::f other", "no variable 'other' here"), ("main count", "no variable 'count' here"),
                                 ("take p->count", "no member 'count'"), ("take table", "'table' is an array of several dimensions")):
            with self.subTest(definition=definition):
                refused = harness.run([harness.tool(), "-x", program, "--check", "-p", definition])
                self.assertIn(said, refused.stderr.decode())

    def test_gcc(self):
        self.check("g++")
        self.check("g++", "-gdwarf-4")

    def test_gcc_sees_the_space_of_the_function(self):
        program = self.path("scopes")
        subprocess.run([harness.need("g++"), "-O1", "-g", "-o", program, self.write("scopes.cpp", SCOPES)], check=True)
        done = harness.run([*harness.tracer("-q", "-o", self.path("trace"), "-p", f"p:f {program}:b::f of_space"), "--", program])
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        with open(self.path("trace"), encoding="latin-1") as file:
            self.assertIn(" of_space=2\n", file.read())

    def test_clang(self):
        self.check(harness.need("clang++-14"))


WIDE = """
struct Pair { int n; unsigned __int128 u; };
__int128 global = -((__int128)5 << 64);
__attribute__((noinline)) __int128 take(__int128 value, const Pair *p, unsigned __int128 many, long a, __int128 split) {
  __asm__ volatile("" ::: "memory");
  return value + (__int128)p->u + (__int128)many + a + split + global;
}
int main(int argc, char **) {
  Pair pair = {1, ((unsigned __int128)1 << 127) + argc};
  __int128 sum = take(-argc, &pair, ~(unsigned __int128)0, argc, ((__int128)argc << 64) + 7);
  sum += take(argc, &pair, 9007199254740993, 2, -3);
  return sum == 0;
}
"""


class Wide(harness.TestCase):
    """Numbers of 16 bytes, in memory, in two registers, and returned."""
    FIELDS = "value p->u many split global"
    FIRST = ("value=-1 u=170141183460469231731687303715884105729 many=340282366920938463463374607431768211455 "
             "split=18446744073709551623 global=-92233720368547758080")
    SECOND = "value=1 u=170141183460469231731687303715884105729 many=9007199254740993 split=-3 global=-92233720368547758080"

    def build(self, *command):
        program, source = self.path("wide"), self.write("wide.cpp", WIDE)
        subprocess.run([*command, "-g", "-o", program, source], check=True)
        return program

    def trace(self, program, *words):
        done = harness.run([*harness.tracer("-q", "-o", self.path("trace")), *words, "--", program])
        self.assertEqual((done.returncode, done.stderr), (0, b""), words)
        with open(self.path("trace"), encoding="latin-1") as file:
            return file.read()

    def arguments(self, program, *words):
        return [hit.arguments for hit in harness.parse_trace(self.trace(program, *words))]

    def test_one_number(self):
        for compiler in ("g++", "clang++"):
            with self.subTest(compiler=compiler):
                program = self.build(harness.need(compiler), "-O0")
                self.assertEqual(self.arguments(program, "-p", f"p:e {program}:take {self.FIELDS}"), [self.FIRST, self.SECOND])

    def test_two_registers(self):
        """As gdb has them (gcc's debug information may name the two in the wrong order)."""
        program = self.build(harness.need("g++"), "-O2")
        fields = ["value", "p->u", "split", "global"]
        prints = [word for field in fields for word in ("-ex", "output " + field, "-ex", "echo \\n")]
        symbol = re.search(r" T (_Z4take\w*)", subprocess.check_output(["nm", program], text=True))[1]
        done = subprocess.run([harness.need("gdb"), "-nx", "-batch", "-ex", f"break *{symbol}", "-ex", "run", "-ex", "continue", *prints, program],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        wanted = done.stdout.decode().splitlines()[-len(fields):]
        hits = self.arguments(program, "-p", f"p:e {program}:take " + " ".join(fields))
        self.assertEqual(re.findall(r"=(-?\d+)", hits[1]), wanted)

    def test_types(self):
        program = self.build(harness.need("g++"), "-O0")
        self.assertEqual(self.arguments(program, "-p", f"p:e {program}:take value:x128 w=value:u128 low=value:s64 two=value:x64[2] "
                                                       "@global:s128")[1],
                         "value=0x1 w=1 low=1 two={0x1,0x0} arg5=-92233720368547758080")
        value, u, many, a, split = -1, 2**127 + 1, 2**128 - 1, 1, 2**64 + 7
        result = (value + u + many + a + split - 5 * 2**64 + 2**127) % 2**128 - 2**127
        self.assertEqual(self.arguments(program, "-r", f"r:e {program}:take $retval:s128")[0], f"arg1={result}")

    def test_other_formats(self):
        program = self.build(harness.need("g++"), "-O0")
        probe = ("-p", f"p:e {program}:take value many")
        records = [json.loads(line) for line in self.trace(program, "--format=json", *probe).splitlines()]
        self.assertEqual([record["args"] for record in records if "args" in record],
                         [{"value": -1, "many": str(2**128 - 1)}, {"value": 1, "many": "9007199254740993"}])
        self.assertIn(",-1,340282366920938463463374607431768211455\n", self.trace(program, "--format=csv", *probe))
        recording = self.path("recording")
        self.assertEqual(harness.run([*harness.tracer("-q", "--record", recording, *probe), "--", program]).returncode, 0)
        printed = harness.run([harness.tool(), "-q", "--replay", recording, "-o", "-"]).stdout.decode()
        self.assertIn("value=-1 many=340282366920938463463374607431768211455\n", printed)

    def test_what_is_refused(self):
        program = self.build(harness.need("g++"), "-O2")
        for words, said in ((["-p", f"p:e {program}:take value", "--filter", "value > 1"], "fetch them as :u64 or :s64"),
                            (["-p", f"p:e {program}:take value", "--trigger", "hist:keys=value"],
                             "a number of 16 bytes can be no key and no value; its lower eight can, :u64"),
                            (["-p", f"p:e {program}:take a:u128"], "'a' has only 8 bytes")):
            with self.subTest(words=words):
                done = harness.run([*harness.tracer(*words), "--", program])
                self.assertEqual(done.returncode, 125)
                self.assertIn(said, done.stderr.decode())


ENTRIES = """
#include <stdlib.h>
struct pair { int n, m; };
__attribute__((noinline)) int straight(int first, struct pair *p) {
  p->n += first;
  return p->m + atoi("3");
}
__attribute__((noinline)) void loops(char *at) {
  do *at++ = 0; while (*at);
}
int main(void) {
  struct pair p = {4, 5};
  char text[] = "abc";
  loops(text);
  return straight(7, &p) + straight(-8, &p) != 16;
}
"""


class Entries(harness.TestCase):
    """What a variable was at the function's entry is known there, before anything else has run."""

    def build(self):
        """Each variable that is in an argument's register is described as what that was at the entry instead."""
        program, source, assembly = self.path("entries"), self.write("entries.c", ENTRIES), self.path("entries.s")
        subprocess.run([harness.need("gcc"), "-O1", "-fcf-protection=none", "-g", "-S", "-o", assembly, source], check=True)
        with open(assembly, encoding="utf-8") as file:
            before, text = file.read().split("\t.section\t.debug_loclists", 1)  # elsewhere distances are numbers
        for number in ("0x55", "0x54"):  # DW_OP_reg5, DW_OP_reg4
            in_register = r"(?<!\t\.byte\t0xa3\n)\t\.uleb128 0x1\n\t\.byte\t" + number + r"\n"
            at_entry = f"\t.uleb128 0x4\n\t.byte\t0xa3\n\t.uleb128 0x1\n\t.byte\t{number}\n\t.byte\t0x9f\n"
            text, changed = re.subn(in_register, at_entry, text)
            self.assertNotEqual(changed, 0)
        with open(assembly, "w", encoding="utf-8") as file:
            file.write(before + "\t.section\t.debug_loclists" + text)
        subprocess.run(["gcc", "-o", program, assembly], check=True)
        return program

    def test_first_instructions(self):
        program = self.build()
        done = harness.run([*harness.tracer("-q", "-o", self.path("trace"), "-p", f"p:e {program}:straight first p->n m=p->m same=&p->n"),
                            "--", program])
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        with open(self.path("trace"), encoding="latin-1") as file:
            hits = [hit.arguments for hit in harness.parse_trace(file.read())]
        self.assertEqual([hit.split(" same=")[0] for hit in hits], ["first=7 n=4 m=5", "first=-8 n=11 m=5"])

    def test_other_places(self):
        program = self.build()
        for place, variable in (("straight+%d" % self.second(program), "first"), ("loops", "at")):
            refused = harness.run([harness.tool(), "--check", "-p", f"p:e {program}:{place} {variable}"])
            self.assertIn(f"'{variable}' is not kept here: only what it was at the function's entry could be known",
                          refused.stderr.decode(), place)

    def second(self, program):
        """The distance of a function's second instruction."""
        shown = subprocess.run([harness.need("objdump"), "--disassemble=straight", program], stdout=subprocess.PIPE, check=True)
        places = [int(place, 16) for place in re.findall(r"^ +([0-9a-f]+):\t", shown.stdout.decode(), re.MULTILINE)]
        return places[1] - places[0]


class Words(harness.TestCase):
    def test_names_types_and_refusals(self):
        program, source = self.path("variables"), os.path.join(harness.Options.source, "tests/e2e/fixtures/variables.c")
        subprocess.run([harness.need("gcc"), "-O0", "-g", "-w", "-o", program, source], check=True)
        done = harness.run([*harness.tracer("-q", "-o", self.path("trace"), "-p",
                                            "p:e addresses &o->in low=&o->in:x16 &global o w=&hidden[1]:u64"), "--", program])
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("trace"), encoding="latin-1") as file:
            match = re.search(r"in=(0x\w+) low=(0x\w+) global=(0x\w+) o=\3 w=(\d+)\n", file.read())
        self.assertTrue(match)
        self.assertEqual(int(match[1], 16) % 0x10000, int(match[2], 16))
        self.assertEqual(int(match[1], 16) - int(match[3], 16), 8)

        def said(definition):
            seen = subprocess.run([*harness.tracer("--check", "-p", definition, program)], stderr=subprocess.PIPE, check=False)
            return seen.stderr.decode().splitlines()[0].split(": ", 2)[2] if seen.returncode else ""
        self.assertEqual(said("p with_bits &b.n"), "a bitfield has no address")
        self.assertEqual(said("p with_bits &b:string"), "an address is a number; what is there is 'b'")
        subprocess.run([harness.need("gcc"), "-O2", "-g", "-w", "-o", program, source], check=True)
        self.assertEqual(said("p by_value &t.b"), "'t.b' is not in memory here")
        self.assertEqual(said("p by_value w"), "'w' is a struct or union")
        self.assertEqual(said("p by_value w:u64"), "")
        self.assertEqual(said("p floating f.y"), "'f.y' is in the upper part of a register here")


if __name__ == "__main__":
    harness.main()
