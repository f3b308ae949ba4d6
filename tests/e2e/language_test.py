"""What definitions may say beyond the kernel's probes: the kprobe tracer's forms, function-based events, names of addresses.
Each by the lines that a run prints."""
import re
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
        """What follows the time stamp in each line of a run, by the options given; the program does what it does alone."""
        program = program or self.program
        output = self.path("trace")
        plain = harness.run([program])
        seen = harness.run([*harness.tracer("-q", "-o", output, *words), "--", program], env=env)
        self.assertEqual((seen.returncode, seen.stdout), (plain.returncode, plain.stdout), seen.stderr)
        with open(output, encoding="latin-1") as file:
            return [re.sub(r"^.{16}-\d+ +\[\d+\] \.{5} +\d+\.\d{6}: ", "", line)
                    for line in file.read().splitlines() if not line.startswith("#")]

    def refusal(self, *words):
        """What is said, and the part of the definition from the caret on."""
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
        """Every form of the document, by the names of a program of ours."""
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
        """The C library calls main: its part is named as far as the library has symbols, and never wrongly."""
        lines = self.trace("-F", "main()", "-p", "p:e main caller=+0($stack):symbol")
        self.assertEqual(len(lines), 2)
        libc = Elf(harness.libc_of(self.program))
        called = {name for name in libc.symbols if name.startswith("__libc")} | {"__libc_start_call_main"}
        caller = next(line for line in lines if "->" in line).split("->")[0]
        self.assertTrue(caller.startswith("0x") or caller in called, caller)

    def test_the_callback_of_a_library_function(self):
        """What is called by another object's function: `write` of libc by puts' machinery or by main, not by a neighbour."""
        libc = harness.libc_of(self.program)
        lines = self.trace("-F", f"{libc}:puts(string s)", "-F", f"{libc}:printf(string s)",
                           program=harness.fixture("language_O0"))
        self.assertEqual(lines, ["main->printf(s=%d", ")"])

    def test_the_format_file(self):
        proto = "vfs_read(symbol ip[16] | x64[6] stack[16] | unsigned int n[2])"
        code, out, err = self.ask("--format-file", "-F", proto, self.program)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("\tfield:unsigned long __parent_ip;\toffset:16;\tsize:8;\tsigned:0;\n"
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
        self.assertIn("braces", err)
        code, _, err = self.ask("--check", "--strict", "-F", "vfs_read(x64 a)", self.program)
        self.assertEqual(code, 125)
        self.assertIn("the kernel refuses this without a message", err)


class Symbols(Language):
    def test_addresses_as_functions(self):
        lines = self.trace("-p", "p:e vfs_read f=+16(+40(%di)):symbol back=$stack0:symbol no=%si:symbol "
                                 "some=+0(+40(%di)):symbol[3]")
        self.assertRegex(lines[0], r"^e: \(0x[0-9a-f]+\) f=reader\+0x0 back=run\+0x[0-9a-f]+ no=0x5 "
                                   r"some=\{0x1,0x2,reader\+0x0\}$")

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
