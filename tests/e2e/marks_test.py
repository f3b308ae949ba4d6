# SPDX-License-Identifier: MIT
"""Marks (library/uprobe/marker.h): every compiler, language and optimization makes the same events; the kernel and perf see them."""
import os
import re
import shutil
import signal
import subprocess

import harness
import oracle
from harness import tracer

KINDS = [  # a word for the compiler, and what it is called with
    ("cc", ["-std=c99"]), ("cc", ["-std=c17"]), ("c++", ["-std=c++11"]), ("c++", ["-std=c++20"]),
]
LEVELS = [["-O0"], ["-O1", "-fno-omit-frame-pointer"], ["-O2"], ["-O3", "-flto"], ["-Os", "-fPIC"],
          ["-O2", "-static"], ["-O2", "-ffunction-sections", "-Wl,--gc-sections", "-fno-asynchronous-unwind-tables"]]
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
LEAVES = 200

EXPECTED = [
    ("started", ""),
    ("opened", "fd=19 path=odd took=19000 ns"),
    ("opened", "fd=-1 path= took=18446744073709551615 ns"),
    ("kinds", "o=0x0 bits=3/-2 d=1.500 f=2.25 c='x' color=1 v=7 five=5 text=100%{x|y}$ x=0xfeedface small=44"),
    ("twelve", "-1 2 -3 4 -5 6 a7=65 255 -1099511627776 0.5 twelve 0x1234"),
    *(("leaf", f"a={i} b={3 * i}") for i in range(LEAVES)),
    ("signal", "number=10"),
    ("dear", "made=1"),
    ("twice", "first=0"),
    ("twice", "second=other"),
]
TEMPLATES = [("templated", "size=1 value=97"), ("templated", "size=8 value=7"), ("templated", "size=8 value=7")]


def compilers():
    """(name, is it for C++) of those that are here."""
    for word, names in (("cc", ("gcc", "clang")), ("c++", ("g++", "clang++"))):
        for name in names:
            if shutil.which(name):
                yield name, word


class Marks(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.sources = os.path.join(harness.Options.source, "tests/e2e/fixtures/marks")
        self.headers = os.path.join(harness.Options.source, "library")
        if not any(compilers()):
            self.skipTest("no compiler")

    def compile(self, compiler, *words, sources=("program.c", "other.c"), name="program"):
        """The program, or what the compiler says."""
        path = self.path(name)
        language = ["-x", "c++"] if compiler.endswith("++") else []
        files = [source if "/" in source else os.path.join(self.sources, source) for source in sources]
        done = subprocess.run([compiler, *language, *STRICT, *words, "-I", self.headers, "-I", self.sources, *files, "-o", path],
                              capture_output=True, text=True, check=False)
        return path if done.returncode == 0 else done.stderr

    def program(self, compiler="cc", *words, **named):
        path = self.compile(compiler, *(words or ("-O2",)), **named)
        self.assertTrue(os.path.exists(path), path)
        return path

    def trace(self, program, *words, code=0):
        seen = harness.run([*tracer("-o", self.path("trace"), *words), "--", program])
        self.assertEqual(seen.returncode, code, seen.stderr)
        with open(self.path("trace"), encoding="latin-1") as file:
            seen.hits = harness.parse_trace(file.read())
        return seen


class Compilers(Marks):
    def check(self, compiler, language, level):
        name = "-".join([compiler, *language, *level]).replace("=", "").replace(",", "")
        path = self.compile(compiler, *language, *level, name=name)
        if not os.path.exists(path):
            self.assertIn("cannot find", path)  # a static C library, the plugin of a linker
            return False
        sum_of = sum(i + 9 * i + 5 * (i ^ 3 * i) + 7 * 4 * i for i in range(LEAVES))
        self.assertEqual(subprocess.check_output([path], text=True), f"{sum_of} 2 3 0\n")
        seen = self.trace(path, "-p", "mark:forms:*")
        self.assertEqual(seen.stdout.decode(), f"{sum_of} 2 1003 1\n", seen.stderr)
        shared = [("shared", "n=1"), ("shared", "n=1002")]
        expected = [*EXPECTED, *(TEMPLATES if "++" in compiler else []), *shared]
        # Which of two formats is the first of the file is the compiler's choice.
        found = [(hit.event.replace("twice_2", "twice"), hit.arguments) for hit in seen.hits]
        self.assertEqual(len({hit.event for hit in seen.hits if hit.event.startswith("twice")}), 2)
        # The two of one printf are called in the order that the compiler chooses.
        self.assertEqual([hit for hit in found if hit not in shared], [hit for hit in expected if hit not in shared])
        self.assertEqual(sorted(hit for hit in found if hit in shared), shared)
        self.assertRegex(seen.stderr, rb'forms/twice_2 is forms/twice with another format, "(first=%d|second=%s)", at')
        return True

    def test_all_make_the_same(self):
        made = 0
        for compiler, word in compilers():
            for number, language in enumerate(words for kind, words in KINDS if kind == word):
                for level in LEVELS[number::2] if not harness.LONG else LEVELS:
                    with self.subTest(" ".join([compiler, *language, *level])):
                        made += self.check(compiler, language, level)
        self.assertGreater(made, 5)

    def test_what_the_compiler_refuses(self):
        cases = {
            '"n=%s", number': "format",
            '"n=%d"': "format|conversions",
            '"n=%d", number, number': "too many arguments|not used",
            '"n=%y", number': "conversion",
            '"n=%Lf", wide': "argument 1 has more than 8 bytes|integers, floating point numbers",
            '"n=%d", pair': "format",
            "text, number": "expected",
            '"%d%d%d%d%d%d%d%d%d%d%d%d%d",1,2,3,4,5,6,7,8,9,10,11,12,13': "UPROBE_MARK_takes_12_arguments_at_most",
        }
        for words, said in cases.items():
            source = self.write("refused.c", "#include <uprobe/marker.h>\nstruct pair { int a; };\nint main(int number, char **text_);\n"
                                "int main(int number, char **text_) {\n  struct pair pair = {number};\n  long double wide = number;\n"
                                "  const char *text = text_[0];\n  (void)pair, (void)wide, (void)text;\n"
                                f"  UPROBE_MARK(g, n, {words});\n  return 0;\n}}\n")
            for compiler, _ in compilers():
                with self.subTest(f"{compiler} {words}"):
                    told = self.compile(compiler, sources=(source,), name="refused")
                    self.assertFalse(os.path.exists(told), "it was accepted")
                    self.assertRegex(told, f"error: .*(?:{said})")

    def test_nothing_is_left_where_it_is_switched_off(self):
        program = self.program("cc", "-O2", "-DUPROBE_MARK_NONE")
        seen = harness.run([harness.tool(), "-lmark:*", "-x", program])
        self.assertEqual((seen.returncode, seen.stdout), (0, b""), seen.stderr)
        self.assertIn(b"no marker matches 'mark:*'", seen.stderr)


class Events(Marks):
    def test_lists(self):
        program = self.program()
        seen = harness.run([harness.tool(), "-lmark:forms:[dot]*", "-x", program])
        lines = seen.stdout.decode().splitlines()
        self.assertIn(f'p {program}:mark:forms:opened # 1 place: "fd=%d path=%s took=%llu ns"', lines)
        self.assertIn(f'p {program}:mark:forms:dear # 1 place: "made=%d", with a semaphore', lines)
        self.assertTrue(any(re.search(r':mark:forms:twice # \d places?: "first=%d"; \d places?: "second=%s"$', line)
                            for line in lines), lines)
        self.write("definitions", "".join(line + "\n" for line in lines))
        self.assertEqual(self.trace(program, "-i", self.path("definitions")).counts()["opened"], 2)

    def test_fields_filters_and_formats(self):
        program = self.program()
        seen = self.trace(program, "-p", "mark:forms:opened if fd > 0 && path == \"odd\"", "-p",
                          "p:g/sum mark:forms:leaf both=$arg2 if both == 30", "--format=json")
        with open(self.path("trace"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn('"fd": 19', text.replace('":', '": ').replace("  ", " "))
        self.assertRegex(text, r'"path": ?"odd"')
        self.assertRegex(text, r'"both": ?30')
        self.assertEqual(len([line for line in text.splitlines() if '"event":' in line]), 2, text)
        self.assertEqual(seen.returncode, 0)

    def test_recordings_print_the_same(self):
        program = self.program()
        direct = [(hit.event, hit.arguments) for hit in self.trace(program, "-p", "mark:forms:*").hits]
        done = harness.run([*tracer(f"--record={self.path('recording')}", "-p", "mark:forms:*"), "--", program])
        self.assertEqual(done.returncode, 0, done.stderr)
        again = harness.run([harness.tool(), "--replay", self.path("recording")])
        hits = harness.parse_trace(again.stdout.decode("latin-1"))
        self.assertEqual([(hit.event, hit.arguments) for hit in hits], direct)

    def test_a_library_that_comes_late(self):
        late = self.write("late.c", '#include <uprobe/marker.h>\nvoid late(int n);\n'
                          'void late(int n) { if (UPROBE_MARK_ENABLED(l, late)) UPROBE_MARK(l, late, "n=%d", n); }\n')
        host = self.write("host.c", "#include <dlfcn.h>\nint main(int argc, char **argv) {\n  void *handle = dlopen(argv[argc - 1], RTLD_NOW);\n"
                          "  union { void *data; void (*call)(int); } found;\n  if (!handle) return 1;\n"
                          '  found.data = dlsym(handle, "late");\n  found.call(42);\n  return 0;\n}\n')
        library = self.program("cc", "-shared", "-fPIC", "-O2", sources=(late,), name="late.so")
        program = self.program("cc", "-O2", sources=(host,), name="host")
        seen = harness.run([*tracer("-o", self.path("trace"), "-p", f"{library}:mark:l:late"), "--", program, library])
        self.assertEqual(seen.returncode, 0, seen.stderr)
        with open(self.path("trace"), encoding="latin-1") as file:
            self.assertEqual([hit.arguments for hit in harness.parse_trace(file.read())], ["n=42"])

    def test_formats_that_lie(self):
        """A file whose notes or formats are changed: what makes no sense is refused with its place, and the others go on."""
        program = self.program("cc", "-O2", "-no-pie")
        with open(program, "rb") as file:
            good = file.read()
        cases = [(b"fd=%d path=%s", b"fd=%d path=%n", b"of its format the conversion '%n' is not known"),
                 (b"fd=%d path=%s", b"fd=%d path=%%", b"its format has 2 conversions for 3 arguments"),
                 (b"uprobe\0", b"uprobf\0", b"it is of another kind than version 1 of uprobe")]
        for old, new, said in cases:
            with self.subTest(new):
                with open(program, "wb") as file:
                    file.write(good.replace(old, new, 1))
                seen = self.trace(program, "-p", "mark:forms:*")
                self.assertIn(said, seen.stderr)
                self.assertEqual(seen.counts()["leaf"], LEAVES)


ALL = r"""
#include <uprobe/marker.h>
static inline void third(int i) { UPROBE_MARK(more, third, "i=%d", i); }
int main(void) {
  for (int i = 0; i < 1000; ++i) {
    if (i % 2) UPROBE_MARK(shop, odd, "i=%d way=%ld", i, -3L * i);
    else UPROBE_MARK(shop, even, "i=%d what=%s", i, "odd pear");
    if (i % 3 == 0) third(i);
    if (i % 10 == 0 && UPROBE_MARK_ENABLED(shop, dear)) UPROBE_MARK(shop, dear, "x=%.2f", i / 3.0);
  }
  UPROBE_MARK(shop, last, "");
  return 0;
}
"""


class Others(Marks):
    def test_the_kernel_sees_the_same(self):
        """By the standard note; what the program keeps below its stack pointer stays, as its output shows."""
        program = self.program()
        definitions = [f"p:{name} {program}:sdt:forms:{words}" for name, words in (
            ("opened", "opened fd=$arg1 path=$arg2:string took=$arg3"), ("leaf", "leaf"), ("signal", "signal"), ("dear", "dear"))]
        lines = []
        for definition in definitions:
            seen = harness.run([*tracer("--dry-run", "-p", definition), "--", program])
            lines += [re.sub(r"^p:\w+/", "p:", line) for line in re.findall(r"^p:\S+ .*$", seen.stdout.decode(), re.M)]
        kernel = oracle.run_kernel(lines, [program])
        mine = self.trace(program, *(word for line in lines for word in ("-p", line)))
        self.assertEqual([(hit.event, hit.arguments) for hit in mine.hits], [(hit.event, hit.arguments) for hit in kernel.hits])
        self.assertEqual(mine.counts()["leaf"], LEAVES)
        self.assertEqual(mine.stdout, kernel.stdout)

    def test_perf_knows_them(self):
        perf = shutil.which("perf") or self.skipTest("perf is not installed")
        program = self.program()
        command = [perf, "--buildid-dir", self.path("cache")]
        done = subprocess.run([*command, "buildid-cache", "--add", program], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        listed = subprocess.run([*command, "list", "sdt"], capture_output=True, text=True, check=False).stdout
        self.assertIn("sdt_forms:opened", listed)

    def test_systemtap_lists_them(self):
        """With their arguments. It asks for a kernel's build folder, of which the list needs nothing."""
        stap = shutil.which("stap") or self.skipTest("SystemTap is not installed")
        program = self.program()
        os.makedirs(self.path("kernel/include/config"))
        for name, text in ((".config", "CONFIG_X86_64=y\nCONFIG_UTRACE=y\nCONFIG_MODULES=y\n"), ("Makefile", "KERNELRELEASE=6.1\n"),
                           ("include/config/kernel.release", "6.1.0\n"), ("Module.symvers", ""), ("System.map", "")):
            self.write(f"kernel/{name}", text)
        done = subprocess.run([stap, "-r", self.path("kernel"), "-L", f'process("{program}").mark("*")'], capture_output=True, text=True,
                              check=False, timeout=harness.TIMEOUT)
        self.assertEqual(done.returncode, 0, done.stderr)
        arguments = dict(re.findall(r'\.mark\("(\w+)"\) ?(.*)$', done.stdout, re.MULTILINE))
        listed = harness.run([harness.tool(), "-lmark:*", "-x", program]).stdout.decode()
        self.assertEqual(set(arguments), set(re.findall(r":mark:\w+:(\w+) ", listed)))
        self.assertRegex(arguments["opened"], r"^\$arg1:long \$arg2:long \$arg3:long")

    def test_bpftrace_counts_all_of_them_alike(self):
        bpftrace = shutil.which("bpftrace") or self.skipTest("bpftrace is not installed")
        source = self.write("all.c", ALL)
        program = harness.compiled([harness.need("cc"), "-O2", f"-I{harness.Options.source}/library", source], self.path("all"))
        done = harness.run([bpftrace, "-e", "usdt:%s:*:* { @[probe] = count(); }" % program, "-c", program])
        if b"Attaching" not in done.stdout or b"@[" not in done.stdout:
            self.skipTest("bpftrace cannot trace here")
        counts = dict(re.findall(r"^@\[usdt:.*:(\w+:\w+)\]: (\d+)$", done.stdout.decode(), re.MULTILINE))
        mine = self.trace(program, "-p", "mark:*:*")
        self.assertEqual({name.partition(":")[2]: int(count) for name, count in counts.items()}, mine.counts())
        self.assertEqual(mine.counts(), {"even": 500, "odd": 500, "third": 334, "dear": 100, "last": 1})

    def test_bpftrace_reads_their_values(self):
        bpftrace = shutil.which("bpftrace") or self.skipTest("bpftrace is not installed")
        source = self.write("sold.c", "#include <uprobe/marker.h>\n"
                            'int main(void) { for (int i = 0; i < 5; ++i) UPROBE_MARK(shop, sold, "count=%d way=%ld", i, -3L * i); return 0; }\n')
        program = harness.compiled([harness.need("cc"), "-O2", f"-I{harness.Options.source}/library", source], self.path("sold"))
        script = 'usdt:%s:shop:sold { printf("sold %%d %%d\\n", (int32)arg0, (int64)arg1); }' % program
        done = harness.run([bpftrace, "-e", script, "-c", program])
        if b"Attaching" not in done.stdout or b"sold" not in done.stdout:
            self.skipTest("bpftrace cannot trace here")
        self.assertEqual(re.findall(rb"sold (\S+) (\S+)", done.stdout), [(b"%d" % i, b"%d" % (-3 * i)) for i in range(5)], done.stderr)


class Control(Marks):
    PROGRAM = r"""
#include <stdio.h>
#include <uprobe/marker.h>
int main(void) {
  int letter, number = 0;
  while ((letter = getchar()) != EOF && letter != 'q') {
    if (letter == 'm') UPROBE_MARK(talk, said, "number=%d", ++number);
    if (letter == 'n') UPROBE_MARK(talk, other, "");
    if (letter == 'v') number = UPROBE_MARK_ENABLED(talk, other);
    printf("%d\n", number);
    fflush(stdout);
  }
  return 0;
}
"""

    def setUp(self):
        super().setUp()
        self.built = self.program("cc", "-O2", sources=(self.write("talk.c", self.PROGRAM),), name="talk")
        os.mkdir(self.path("run"), 0o700)
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": self.path("run")}
        self.name = f"marks{os.getpid()}"
        self.process = subprocess.Popen(tracer("-q", "-o", self.path("trace"), "--session", self.name, "-p", "mark:talk:*", "--", self.built),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment, start_new_session=True)
        self.addCleanup(harness.stop_group, self.process)

    def say(self, letters):
        self.process.stdin.write(letters.encode())
        self.process.stdin.flush()
        return [int(self.process.stdout.readline()) for _ in letters]

    def told(self, *words):
        seen = harness.run([harness.tool(), "--control", self.name, *words], env=self.environment)
        self.assertEqual(seen.returncode, 0, seen.stderr)
        return seen.stdout.decode()

    def test_on_off_information_and_counts(self):
        self.assertEqual(self.say("mmn"), [1, 2, 2])
        said = "talk/said on, 1 place, 2 hits, 0 lost, \"number=%d\"\n"
        other = "talk/other on, 1 place, 1 hits, 0 lost\n"
        harness.wait_until(lambda: sorted(self.told("--info").splitlines(True)) == sorted([said, other]), "the hits to be counted")
        self.assertEqual(self.told("--info=said"), said)
        self.assertEqual(self.told("--disable=talk/said"), "disabled 1 probe\n")
        self.say("mmm")
        self.assertIn("talk/said off, 1 place, 2 hits", self.told("--info", "talk/said"))
        self.assertEqual(self.told("--reset=said", "--info=said"),
                         "reset 1 probe\ntalk/said off, 1 place, 0 hits, 0 lost, \"number=%d\"\n")
        self.assertEqual(self.told("--enable"), "enabled 2 probes\n")
        self.say("m")
        harness.wait_until(lambda: "talk/said on, 1 place, 1 hits" in self.told("--info"), "the hit to be counted")
        self.assertEqual(self.told("--reset"), "reset 2 probes\n")
        self.assertEqual(self.say("v"), [1])
        self.assertEqual(self.told("--disable=talk/"), "disabled 2 probes\n")
        self.assertEqual(self.say("v"), [0])
        self.process.communicate(b"q", timeout=harness.TIMEOUT)
        with open(self.path("trace"), encoding="latin-1") as file:
            self.assertEqual([hit.arguments for hit in harness.parse_trace(file.read()) if hit.event == "said"],
                             ["number=1", "number=2", "number=6"])

    def test_losses_by_cpu(self):
        cpu = max(os.sched_getaffinity(0))
        process, name = self.process, self.name
        self.name += "b"
        self.process = subprocess.Popen(tracer("-q", "-b", "8K", "-o", self.path("trace2"), "--session", self.name, "-p", "mark:talk:*", "--",
                                               self.built),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment, start_new_session=True,
                                        preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
        self.addCleanup(harness.stop_group, self.process)
        self.say("mn")
        self.assertNotIn("CPU", self.told("--info"))
        tool = self.process.pid
        harness.stop(tool)
        for _ in range(40):
            self.say("m" * 100)
        os.kill(tool, signal.SIGCONT)
        self.say("n")
        harness.wait_until(lambda: "talk/said on, 1 place, 4001 hits" in self.told("--info"), "the hits to be counted")
        told = self.told("--info")
        lost = sum(map(int, re.findall(r"hits, (\d+) lost", told)))
        self.assertGreater(lost, 1000)
        self.assertIn(f"\nlost by CPU: {lost} on {cpu}\n", told)
        self.assertNotIn("CPU", self.told("--info=said"))
        self.told("--reset")
        self.assertNotIn("CPU", self.told("--info"))
        self.process.communicate(b"q", timeout=harness.TIMEOUT)
        self.process, self.name = process, name

    def test_what_is_not_there(self):
        self.say("n")  # it runs
        for word in ("--info=nothing", "--reset=talk/nothing"):
            seen = harness.run([harness.tool(), "--control", self.name, word], env=self.environment)
            self.assertEqual(seen.returncode, 125)
            self.assertIn(b"no such event", seen.stderr)
        for word in ("--info", "--reset"):
            seen = harness.run([harness.tool(), word, "--", "/bin/true"])
            self.assertEqual(seen.returncode, 125)
            self.assertIn(f"{word} ".encode(), seen.stderr)


class Document(Marks):
    """docs/markers.md: its program is compiled and its commands are run; they print what it says."""
    MASKS = ((r"^ *(\S+)-\d+ +\[\d+\] \S{5} +\d+\.\d{6}: ", r"\1 TIME: "), (r"\b\d+\.\d{6,9}\b", "TIME"),
             (r"0x[0-9a-f]{6,}", "ADDRESS"), (r"TIME,\d+,\d+,\d+", "TIME,CPU,PID,TID"))

    def masked(self, lines):
        text = "\n".join(line.rstrip() for line in lines)
        for pattern, shown in self.MASKS:
            text = re.sub(pattern, shown, text, flags=re.M)
        return text.splitlines()

    def test_it_is_true(self):
        shutil.which("cc") or self.skipTest("no compiler")
        with open(os.path.join(harness.Options.source, "docs/markers.md"), encoding="utf-8") as file:
            part = file.read().partition("## Marks")[2]
        self.write("shop.c", re.search(r"```c\n(.*?)```", part, re.S)[1])
        environment = {**os.environ, "C_INCLUDE_PATH": self.headers, "PATH": f"{os.path.dirname(harness.tool())}:{os.environ['PATH']}"}
        commands = re.findall(r"^    \$ (.+)\n((?:    (?!\$).*\n)*)", part, re.M)
        self.assertEqual(len(commands), 4)
        for command, output in commands:
            with self.subTest(command):
                seen = subprocess.run(command, shell=True, cwd=self.path("."), env=environment, capture_output=True, text=True, check=False)
                self.assertEqual(self.masked(seen.stdout.splitlines()), self.masked([line[4:] for line in output.splitlines()]), seen.stderr)


if __name__ == "__main__":
    harness.main()
