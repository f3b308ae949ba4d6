# SPDX-License-Identifier: MIT
"""Definitions beyond the kernel's probes: the kprobe tracer's forms, function-based events, names of addresses.
Each by the lines that a run prints."""
import os
import re
import shutil
import subprocess

import harness
from elf_reader import Elf

PLAIN = ("language_O0", "language_O2")


class Language(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.tool()
        self.program = harness.fixture("language_O2")

    def ask(self, *words, stdin=b""):
        done = subprocess.run([*harness.tracer(*words)], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=harness.TIMEOUT, check=False)
        return done.returncode, done.stdout.decode("latin-1"), done.stderr.decode("latin-1")

    def trace(self, *words, program=None, env=None):
        """The text after the time stamp in each line of a run with these options; the program behaves as without probes."""
        program = program or self.program
        output = self.path("trace")
        plain = harness.run([program])
        seen = harness.run([*harness.tracer("-q", "-o", output, *words), "--", program], env=env)
        self.assertEqual((seen.returncode, seen.stdout), (plain.returncode, plain.stdout), seen.stderr)
        with open(output, encoding="latin-1") as file:
            return [re.sub(r"^.{16}-\d+ +\[\d+\] \.{5} +\d+\.\d{6}: ", "", line)
                    for line in file.read().splitlines() if not line.startswith("#")]

    def refusal(self, *words):
        """The message, and the part of the definition from the caret on."""
        code, out, err = self.ask("--check", *words, self.program)
        self.assertEqual((code, out), (125, ""))
        lines = err.splitlines()
        return lines[0].split(": ", 2)[2], lines[1][lines[2].index("^"):]


class Kprobes2009(Language):
    def test_its_forms_and_its_lines(self):
        lines = self.trace("--style=2009", "-p", "p vfs_read+0 %si # a comment", "-p", "r vfs_read $retval",
                           "-p", "p open_at %di:s32 text=+0(%si):string")
        self.assertEqual(lines, ["vfs_read: @vfs_read+0 0x5", "run: <-vfs_read+0 0x5",
                                 'open_at: @open_at+0 -100 "/proc/kallsyms"'])

    def test_its_words(self):
        lines = self.trace("--style=2009", "-p", "p open_at a0 a1:s8 +5(a1):string -8(sa) s0 sa",
                           "-p", "r open_at rv ra", "-p", "p eight a5:s32 a6 a7:s32 s1 s2:s32")
        match = re.fullmatch(r"open_at: @open_at\+0 0x\w+ -?\d+ \"/kallsyms\" 0x\w+ (0x\w+) 0x7f\w+", lines[0])
        self.assertEqual(lines[1:], [f"run: <-open_at+0 0x3 {match[1]}", "eight: @eight+0 6 0x7 -8 0x7 -8"])
        self.assertEqual(self.ask("--list-events", "--style=2009", "-p", "p open_at x=+8(a1):u8 s2", "-p",
                                  "r vfs_read rv ra", self.program)[1],
                         "p open_at+0 x=+8($arg2):u8 $stack2\nr vfs_read+0 $retval %ip\n")
        self.assertEqual(self.refusal("--style=2009", "-p", "p open_at ra"), ("ra is not available on probe", "ra"))
        self.assertIn("did you mean '$arg2'?", self.ask("--check", "-p", "p open_at a1", self.program)[2])

    def test_an_address_is_the_files_own(self):
        address = Elf(self.program).symbols["vfs_read"]
        self.assertEqual(self.trace("--style=2009", "-p", f"p {address:#x} %si"), ["vfs_read: @vfs_read+0 0x5"])
        self.assertEqual(self.refusal("-p", "p 0x7fffffffff")[1], "0x7fffffffff")

    def test_its_listing(self):
        words = ["-p", "p walk+0x0 %di", "-p", "r:mine vfs_read r=$retval", "-F", "walk(NULL, x64 p)"]
        code, out, err = self.ask("--list-events", "--style=2009", *words, self.program)
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(out.splitlines(), ["p walk+0 %di", "r:uprobes/mine vfs_read+0 r=$retval",
                                            f"{self.program}:walk(NULL, x64 p)"])

    def test_an_empty_write_clears(self):
        words = ["--list-events", "-p", "p walk", "-p", "", "-p", "p vfs_read", self.program]
        self.assertEqual(self.ask("--style=2009", *words)[1], "p vfs_read+0\n")
        self.assertEqual(self.ask(*words)[0], 125, "only there")
        self.assertEqual(self.trace("--style=2009", "-p", "p walk", "-i", self.write("none", "\n"), "-p", "p vfs_read"),
                         ["vfs_read: @vfs_read+0"])

    def test_automatic_names(self):
        lines = self.ask("--list-events", "-p", "p vfs_read", "-p", "r vfs_read", "-p", "p: walk+0", self.program)[1]
        self.assertEqual([line.split(" ")[0] for line in lines.splitlines()],
                         ["p:uprobes/p_vfs_read_0", "r:uprobes/r_vfs_read_0", "p:uprobes/p_walk_0"])

    def test_by_ld_preload(self):
        output = self.path("preloaded")
        env = harness.preloaded(UPROBE_PROBES="p:e vfs_read %si:s32", UPROBE_OUTPUT=output)
        harness.run([self.program], env=env)
        with open(output, encoding="latin-1") as file:
            self.assertRegex(file.read(), r" e: \(0x[0-9a-f]+\) arg1=5\n")


class FunctionEvents(Language):
    def test_the_documented_lines(self):
        """Every form of the document, by the names of the test's program."""
        cases = {
            "vfs_read()": "run->vfs_read()",
            "vfs_read(symbol read+40[0]+16)": r"run->vfs_read(read=reader+0x0/SIZE)",
            "vfs_read(NULL, int count)": "run->vfs_read(count=5)",
            "vfs_read(NULL | x8[6] address+56)": "run->vfs_read(address=b4,b5,2f,ce,18,65)",
            "vfs_read(int total=$total_forks, x8 at[56] | string path+48[0], s32 n)":
                "run->vfs_read(total=7, at=b4, path=x/y, n=5)",
            "open_at(int dfd, string path, x32 flags, x16 mode)":
                "run->open_at(dfd=-100, path=/proc/kallsyms, flags=40, mode=3)",
            "open_at(NULL, char[10] path | char first[0] | x8[3] bytes)":
                "run->open_at(path=/proc/kall, first=/, bytes=2f,70,72)",
            "eight(x64 a, int b, char c, unsigned char d, unsigned short e, u64 f, long g, int h)":
                "run->eight(a=1, b=-2, c=c, d=d, e=65535, f=6, g=7, h=-8)",
            "walk(string name, int len[2] | u8 bits+14[0] | string next[0]+15, s32[3] numbers | int second[1])":
                "run->walk(name=a name, len=4, bits=17, next=last, numbers=10,20,30, second=20)",
        }
        for proto, line in cases.items():
            with self.subTest(proto=proto):
                seen = [re.sub(r"/0x[0-9a-f]+\b", "/SIZE", text) for text in self.trace("-F", proto)]
                self.assertEqual(seen, [line])

    def test_an_address_of_the_file(self):
        address = Elf(self.program).symbols["total_forks"]
        self.assertEqual(self.trace("-F", f"vfs_read(int total_forks={address:#x} | int {address:#x})"),
                         [f"run->vfs_read(total_forks=7, {address:#x}=7)"])

    def test_from_a_file_and_with_other_events(self):
        """A file of definitions may hold both; the same in every shape of the program."""
        file = self.write("events", "# both\nvfs_read(NULL, int n)  # why\np:e open_at %di:s32\n")
        for name in PLAIN:
            lines = self.trace("-i", file, program=harness.fixture(name))
            self.assertEqual(lines[0], "run->vfs_read(n=5)")
            self.assertRegex(lines[1], r"^e: \(0x[0-9a-f]+\) arg1=-100$")

    def test_a_caller_in_a_library(self):
        """The C library calls main: the caller is named as far as the library has symbols, and never wrongly."""
        lines = self.trace("-F", "main()", "-p", "p:e main caller=+0($stack):symbol")
        self.assertEqual(len(lines), 2)
        libc = Elf(harness.libc_of(self.program))
        called = {name for name in libc.symbols if name.startswith("__libc")} | {"__libc_start_call_main"}
        caller = next(line for line in lines if "->" in line).split("->")[0]
        self.assertTrue(caller.startswith("0x") or caller in called, caller)

    def test_the_callback_of_a_library_function(self):
        """A function that another object's function calls: `write` of libc by puts' machinery or by main, not by a neighbour."""
        libc = harness.libc_of(self.program)
        lines = self.trace("-F", f"{libc}:puts(string s)", "-F", f"{libc}:printf(string s)",
                           program=harness.fixture("language_O0"))
        self.assertEqual(lines, ["main->printf(s=%d\\n)"])

    def test_the_format_file(self):
        proto = "vfs_read(symbol ip[16] | x64[6] stack[16] | unsigned int n[2])"
        code, out, err = self.ask("--format-file", "-F", proto, self.program)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("\tfield:unsigned long __parent_ip;\toffset:8;\tsize:8;\tsigned:0;\n"
                      "\tfield:unsigned long __ip;\toffset:16;\tsize:8;\tsigned:0;\n"
                      "\tfield:symbol ip;\toffset:24;\tsize:8;\tsigned:0;\n"
                      "\tfield:x64 stack[6];\toffset:32;\tsize:48;\tsigned:0;\n"
                      "\tfield:unsigned int n;\toffset:80;\tsize:4;\tsigned:0;\n", out)
        self.assertIn('print fmt: "%ps->%ps(ip=%pS, stack=%Lx,%Lx,%Lx,%Lx,%Lx,%Lx, n=%u)", REC->__parent_ip, REC->__ip,', out)

    def test_refusals(self):
        self.assertEqual(self.refusal("-F", "vfs_read(x65 a)"), ("Unknown type is specified", "x65 a)"))
        self.assertEqual(self.refusal("-F", "vfs_raed(x64 a)")[1], "vfs_raed(x64 a)")
        self.assertEqual(self.refusal("-F", "walk(int a=$nowhere)")[1], "nowhere)")
        self.assertEqual(self.refusal("-F", "walk(int a=0x7fffffffff)")[1], "0x7fffffffff)")
        code, _, err = self.ask("-F", "vfs_read", self.program)
        self.assertEqual(code, 125)
        self.assertIn("parentheses", err)
        code, _, err = self.ask("--check", "--strict", "-F", "vfs_read(x64 a)", self.program)
        self.assertEqual(code, 125)
        self.assertIn("the kernel refuses this without a message", err)


SOURCE = """
struct s { long a, b; int c; };
__attribute__((noinline)) void use(int *p) { asm volatile("" :: "r"(p) : "memory"); }
__attribute__((noinline)) int taken(int x, struct s v, int y) {
  use(&x); use(&v.c); asm volatile("" ::: "memory");
  return x + y + v.c;
}
__attribute__((noinline)) int nine(int a, int b, int c, int d, int e, int f, int g, int h, int i) {
  asm volatile("" ::: "memory"); return a + i + h + g + b + c + d + e + f;
}
int main(void) {
  struct s v = {1, 2, 3}; int k = 5;
  return taken(k, v, 7) + nine(1, 2, 3, 4, 5, 6, 7, 8, 9) == 60 ? 0 : 1;
}
"""


CLASSES = """#include <cstdio>
struct Root { int first = 1; long shared = 2; };
struct Other { int second = 3; long shared = 4; };
struct Virtual { int far = 5; };
struct Middle : Root { short middle = 6; };
struct Left : Middle, Other, virtual Virtual { int own = 7; int first = 8; };
namespace n { struct Thing { int depth = 9; __attribute__((noinline)) int walk(int steps); }; }
int n::Thing::walk(int steps) { asm volatile("" ::: "memory"); return depth + steps; }
__attribute__((noinline)) int look(Left *left, Left &ref, int *&p, Left &&moved) {
  int **pp = &p;
  asm volatile("" :: "r"(pp) : "memory");
  return left->own + ref.own + *p + moved.own;
}
int main() {
  Left a;
  int x = 10, *p = &x;
  n::Thing thing;
  std::printf("%d\\n", look(&a, a, p, Left()) + thing.walk(4));
}
"""


class Source(Language):
    def line(self, comment):
        """The number of a line of the fixture's source."""
        path = os.path.join(harness.Options.source, "tests/e2e/fixtures/language.c")
        with open(path, encoding="utf-8") as file:
            return next(number for number, line in enumerate(file, 1) if f"// line: {comment}" in line)

    def values(self, *definitions, level="O0"):
        words = [word for definition in definitions for word in ("-p", definition)]
        return [line.split(") ", 1)[1] for line in self.trace(*words, program=harness.fixture(f"language_{level}"))]

    def test_a_line_of_a_debug_build(self):
        place = f"language.c:{self.line('in the loop')}"
        program = harness.fixture("language_O0")
        for where in (f"{program}:{place}", place, f"{program}:fixtures/{place}"):
            self.assertEqual(self.values(f"p:f {where} name p->next->len:u32 at->text at->tag sum local"),
                             ['name="a name" len=9 text="the first" tag="first" sum=0 local=60',
                              'name="a name" len=9 text="the last" tag="last" sum=64 local=60'])

    def test_types(self):
        place = f"language.c:{self.line('after the loop')}"
        self.assertEqual(self.values(f"p:f {place} sum local large paint small p->weight p->kind p->tag[0] n=numbers[2] "
                                     "numbers:s32[3] text=p->next->text:string bits=p->flags hex=local:x16"),
                         ["sum=133 local=60 large=1099511627776 paint=5 small=-3 weight=7 kind=2 tag='f' n=30 "
                          'numbers={10,20,30} text="the last" bits=1 hex=0x3c'])
        self.assertEqual(self.values("p:f vfs_read file->operations->read:symbol file->path file->address file->address[1] "
                                     "total_forks banner"),
                         ['read=reader+0x0 path="x/y" address={180,181,47,206,24,101} arg4=181 total_forks=7 '
                          'banner="hello"'])

    def test_every_argument_at_the_function(self):
        for level in ("O0", "O2"):
            self.assertEqual(self.values("p:f eight a b c d e f g h", level=level),
                             ["a=1 b=-2 c='c' d=100 e=65535 f=6 g=7 h=-8"])
            self.assertEqual(self.values("p:f walk name p->len n=numbers[1] p->tag", level=level),
                             ['name="a name" len=4 n=20 tag="first"'])

    def test_floating_point(self):
        """In memory, and in vector registers."""
        for level in ("O0", "O2"):
            self.assertEqual(self.values("p:f mean first second count bits=first:x32", level=level),
                             ["first=1.5 second=-2.25 count=2 bits=0x3fc00000"])
        self.assertEqual(self.refusal("-p", "p mean first:string")[1], "first:string")

    def declaration(self, function):
        path = os.path.join(harness.Options.source, "tests/e2e/fixtures/language.c")
        with open(path, encoding="utf-8") as file:
            return next(number for number, line in enumerate(file, 1) if f" {function}(" in line)

    def test_lines_of_a_function(self):
        """From its own line on, which is 0, as perf probe counts them; in an inlined one too."""
        for level in ("O0", "O2"):
            program = harness.fixture(f"language_{level}")
            line = self.line("in the loop") - self.declaration("walk")
            self.assertEqual(self.values(f"p:f {program}:walk:{line} name at->len", level=level),
                             ['name="a name" len=4', 'name="a name" len=9'])
            self.assertEqual(self.values(f"p:f {program}:walk:0 name", level=level), ['name="a name"'])
            self.assertEqual(self.values(f"p:f {program}:inlined:1 doubled", level=level), ["doubled=21"])

    def test_groups_of_variables(self):
        for level in ("O0", "O2"):
            self.assertEqual(self.values("p:f eight $params", level=level), ["a=1 b=-2 c='c' d=100 e=65535 f=6 g=7 h=-8"])
        place = f"language.c:{self.line('after the loop')}"
        self.assertRegex(self.values(f"p:f {place} local:u8 $vars %ip")[0],
                         '^local=60 name="a name" p=0x7ff\\w+ numbers=0x7ff\\w+ sum=133 large=1099511627776 paint=5 small=-3 '
                         r"arg3=0x\w+$")
        listing = self.ask("--list-events", "-p", "p:f open_at $vars", self.program)[1]
        self.assertEqual(listing.split(" ", 2)[2], "folder=%di:s32 path=+0(%si):string flags=%dx:s32 mode=%cx:s16\n")
        for words in (f"p:f {place} $vars", "p:f eight $params", "p:f walk *numbers *p->text:u8 name=*name"):
            with self.subTest(words=words):
                self.check_kernels_words(words)

    def check_kernels_words(self, words):
        """--list-events prints what a kernel takes, and it fetches the same."""
        program = harness.fixture("language_O0")
        line = self.ask("--list-events", "-p", words, program)[1].strip()
        code, out, err = self.ask("--check", "--strict", "-p", line, program)
        self.assertEqual((code, out.strip(), err), (0, line, ""))
        seen, wanted = ([re.sub(r"=0x7f\w+", "=STACK", values) for values in self.values(one)] for one in (line, words))
        self.assertEqual(seen, wanted)

    def test_what_pointers_point_to(self):
        self.assertEqual(self.values("p:f walk *p->next->text *numbers x=*p->text:u8 name=*name"),
                         ["text='t' numbers=10 x=116 name='a'"])

    def test_classes(self):
        program, source = self.path("classes"), self.write("classes.cpp", CLASSES)
        subprocess.run([harness.need("g++"), "-g", "-O0", "-o", program, source], check=True)
        self.program = program
        place = "classes.cpp:" + str(CLASSES.splitlines().index("  return left->own + ref.own + *p + moved.own;") + 1)
        self.assertEqual([line.split(") ", 1)[1] for line in self.trace(
            "-p", f"p:f {place} left->middle left->second left->far left->own first=left->first r=ref.own m=moved.own v=*p w=**pp",
            "-p", "p:g n::Thing::walk this->depth steps", program=program)],
            ["middle=6 second=3 far=5 own=7 first=8 r=7 m=7 v=10 w=10", "depth=9 steps=4"])
        self.assertEqual(self.refusal("-p", f"p:f {place} left->shared"),
                         ("member 'shared' is ambiguous: several base classes have it", "shared"))

    def test_inlined_code(self):
        place = f"language.c:{self.line('inlined')}"
        for level in ("O0", "O2"):
            self.assertEqual(self.values(f"p:f {place} doubled", level=level), ["doubled=21"])

    def test_other_compilers_and_formats(self):
        """The same values with debug information of each compiler, or a refusal with the reason if there is none."""
        source = self.write("values.c", SOURCE)
        expected = {"t": "x=5 a=1 c=3 y=7", "n": "a=1 f=6 g=7 i=9"}
        tried = 0
        for compiler in ("gcc", "clang", "clang-14"):
            for flags in ("-O0", "-O0 -gdwarf-2", "-O0 -gdwarf-4", "-O0 -fomit-frame-pointer", "-O0 -fstack-protector-all",
                          "-O1", "-O2", "-O2 -gdwarf-4 -no-pie"):
                if not shutil.which(compiler):
                    continue
                program = self.path("values")
                subprocess.run([compiler, *flags.split(), "-g", "-o", program, source], check=True)
                with self.subTest(compiler=compiler, flags=flags):
                    for event, text in (("t", "p:t taken x v.a v.c y"), ("n", "p:n nine a f g i")):
                        code, _, err = self.ask("--check", "-p", text, program)
                        if code != 0 and ("-O0" not in flags or "-fomit" in flags):
                            self.assertRegex(err, "is in a frame whose place is not known here|optimised away|not in place")
                            continue
                        lines = self.trace("-p", text, program=program)
                        self.assertEqual([line.split(") ", 1)[1] for line in lines], [expected[event]])
                        tried += 1
        self.assertGreater(tried, 10)

    def test_what_is_optimised_away_is_named(self):
        def said(definition, level="O2"):
            _, _, err = self.ask("--check", "-p", definition, harness.fixture(f"language_{level}"))
            return err.splitlines()[0].split(": ", 2)[2]
        self.assertRegex(said(f"p language.c:{self.line('gone')} gone"), "^'gone' is (optimised away|not kept) here")
        self.assertRegex(said(f"p language.c:{self.line('after the loop')} sum"), "^'sum' is optimised away here")

    def test_refusals(self):
        self.program = harness.fixture("language_O0")
        cases = {"p walk nosuch": ("no variable 'nosuch' here", "nosuch"),
                 "p walk p->nosuch": ("no member 'nosuch'", "nosuch"),
                 "p walk p.len": ("'p' is a pointer", ".len"),
                 "p walk name->x": ("'name' is no struct or union", "->x"),
                 "p walk *p": ("'*p' is a struct or union", "*p"),
                 "p walk *p->len": ("'p->len' is no pointer", "*p->len"),
                 "p walk **p": ("'*p' is no pointer", "**p"),
                 "p walk &p->flags": ("a bitfield has no address", "&p->flags"),
                 "p walk &nosuch": ("no variable 'nosuch' here", "nosuch"),
                 "p walk &p->tag:string": ("an address is a number; what is there is 'p->tag'", "&p->tag:string"),
                 "p walk *&p": ("no variable '' here", "&p"),
                 "p walk *": ("no variable '' here", ""),
                 "p walk +0(*p)": ("A variable is no address to add to", "*p)"),
                 "p walk x=$vars": ("$vars stands for several arguments, which have names and types of their own", "x=$vars"),
                 "p walk $params:u8": ("$params stands for several arguments, which have names and types of their own", "$params:u8"),
                 "r walk $vars": ("a function's variables no longer exist when it has returned", "$vars"),
                 "p walk $var": ("Invalid $-variable specified", "$var"),
                 "p reader+0x0 $vars $params": ("no variable can be fetched here", "$params"),
                 f"p {self.program}:walk:99": ("no code at walk:99", "walk:99"),
                 f"p {self.program}:walk:4294967295": ("Invalid line number", "4294967295"),
                 f"p {self.program}:nosuch:3": ("no function 'nosuch' in the debug information", "nosuch:3"),
                 f"p {self.program}:walk:{self.line('gone') - self.declaration('walk')}":
                     (f"no code at walk:{self.line('gone') - self.declaration('walk')}", f"walk:{self.line('gone') - self.declaration('walk')}"),
                 "p walk p->len:u64": ("'p->len' has only 4 bytes", "p->len:u64"),
                 "p walk p->next->len:string": ("'p->next->len' is neither a pointer nor an array", "p->next->len:string"),
                 "p walk p->tag[8]": ("the array has only 8 elements", "8]"),
                 "p walk +8(p)": ("A variable is no address to add to", "p)"),
                 "p walk p[": ("Expected a number and ']'", ""),
                 "p walk x=p->next->": ("no member ''", ""),
                 "r walk name": ("a function's variables no longer exist when it has returned", "name"),
                 "r language.c:73": ("a return probe belongs to a function, not to a line", "language.c:73"),
                 "p language.c:3 x": ("no code at language.c:3", "language.c:3 x"),
                 "p nosuch.c:3 x": ("no source 'nosuch.c' in the debug information", "nosuch.c:3 x"),
                 "p walk di": ("no variable 'di' here", "di"),
                 "p language.c:0": ("Invalid line number", "0")}
        for definition, (text, rest) in cases.items():
            with self.subTest(definition=definition):
                self.assertEqual(self.refusal("-p", definition), (text, rest))

    def test_a_file_without_debug_information(self):
        stripped = self.path("stripped")
        subprocess.run([harness.need("strip"), "-g", "-o", stripped, harness.fixture("language_O0")], check=True)
        for definition in ("p walk name", "p language.c:70"):
            code, _, err = self.ask("--check", "-p", definition, stripped)
            self.assertEqual(code, 125)
            self.assertIn("has no debug information\n", err)

    def test_lists_can_be_pasted(self):
        for level in ("O0", "O2"):
            program = harness.fixture(f"language_{level}")
            code, lines, err = self.ask("--lines=walk", program)
            self.assertEqual((code, err), (0, ""))
            self.assertIn(f":language.c:{self.line('in the loop')} ", lines)
            self.assertIn("# sum += at->len", lines)
            code, variables, err = self.ask("--vars=eight", program)
            self.assertEqual((code, err), (0, ""))
            self.assertEqual(variables.splitlines()[0].split(" ", 2)[2], "a b c d e f g h")
            self.assertIn("# unsigned char d\n", variables)
            seen = self.trace("-i", self.write("list", lines + variables), program=program)
            self.assertGreater(len(seen), 5)
            self.assertTrue(any(line.endswith("a=1 b=-2 c='c' d=100 e=65535 f=6 g=7 h=-8") for line in seen))
        self.assertEqual(self.ask("--lines=nosuch", program)[0], 125)

    def test_strict_has_none(self):
        program = harness.fixture("language_O0")
        code, _, err = self.ask("--check", "--strict", "-p", f"p:e {program}:0x1000 name")
        self.assertEqual((code, "BTF is not available" in err), (125, True))
        code, _, err = self.ask("--check", "--strict", "-p", f"p:e {program}:language.c:70")
        self.assertEqual((code, "Failed to find the given file" in err), (125, True))


class Symbols(Language):
    def test_addresses_as_functions(self):
        lines = self.trace("-p", "p:e vfs_read f=+16(+40(%di)):symbol back=$stack0:symbol no=%si:symbol "
                                 "some=+0(+40(%di)):symbol[3]")
        self.assertRegex(lines[0], r"^e: \(0x[0-9a-f]+\) f=reader\+0x0 back=run\+0x[0-9a-f]+ no=0x5 "
                                   r"some=\{0x1,0x2,reader\+0x0\}$")

    def test_addresses_as_data(self):
        """Of the probed file; the stack is none."""
        lines = self.trace("-p", "p:e vfs_read at=+40(%di):symbol stack=%di:symbol")
        self.assertRegex(lines[0], r"^e: \(0x[0-9a-f]+\) at=operations\.\d+\+0x0 stack=0x[0-9a-f]+$")

    def test_in_children(self):
        """Each process by its own mappings; a short-lived one too."""
        zsh = harness.need("bash")
        output = self.path("trace")
        seen = harness.run([*harness.tracer("-q", "-o", output, "-x", self.program, "-F", "vfs_read(NULL, int n)"), "--",
                            zsh, "-c", f"{self.program}; ({self.program}) & {self.program}; wait"])
        self.assertEqual(seen.stdout.count(b"\n"), 3, seen.stderr)
        with open(output, encoding="latin-1") as file:
            self.assertEqual(len(re.findall(r": run->vfs_read\(n=5\)\n", file.read())), 3)

    def test_strict_has_no_symbols(self):
        code, _, err = self.ask("--check", "--strict", "-p", f"p:e {self.program}:0x10 %di:symbol")
        self.assertEqual(code, 125)
        self.assertIn("Unknown type is specified", err)


if __name__ == "__main__":
    harness.main()
