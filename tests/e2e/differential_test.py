# SPDX-License-Identifier: MIT
"""The tool against the running kernel: same definitions, same command, one after the other; counts, values, output and
exit code must be equal.

Every probed file is a copy of this test's own, so nothing else on the machine is probed or counted. Addresses are made
comparable by running without randomisation; addresses that still vary (mappings made at run time) are compared by their place in
the page. Each command runs twice under the kernel: its counts must repeat, and the few values that do not (process ids,
times) are left out.
"""
import glob
import os
import re
import shutil
import subprocess
import unittest
from collections import Counter

import harness
import oracle
from elf_reader import Elf

UNKNOWN_TASK = "<...>"
MMAP_AREA = 0x7f0000000000  # mappings and the stack are above; programs, heap and plain numbers below
TOP_OF_USER = 0x800000000000

SUBJECT = [
    "p:numbers {0}:take_numbers %di %si:s32 %dx:u8 %cx:s16 %r8:x64 %r9:s64",
    "p:text {0}:take_text text=+0(%di):string length=%si:u64",
    "p:node {0}:take_node n=+0(%di):s32 small=+4(%di):s16 name=+0(+8(%di)):string next=+0(+16(%di)):s32 "
    "last=+0(+8(+16(%di))):string none=+0(+0(+16(+16(%di)))):string raw=+0(%di):x8[8]",
    "p:loop {0}:branchy %di",
    "p:fixed {0}:fixed_code %di %ip",
    "p:middle {0}:middle_of_fixed %ax %di",
    "p:branch {0}:branch_of_fixed %ax %flags:b1@0/32 %flags:b1@6/32 %flags:b1@7/32",
    "p:call {0}:call_of_fixed %ax %bx",
    "p:return {0}:return_of_fixed %ax %sp",
]


def comparable(hit):
    """The part of a hit that must be equal in two runs: the event and its values, moving addresses by their place in the page."""
    def address(match):
        value = int(match[0], 16)
        return f"..{value & 0xfff:03x}" if MMAP_AREA <= value < TOP_OF_USER else match[0]
    return f"{hit.event}: " + re.sub(r"0x[0-9a-f]{9,16}", address, hit.rest)


class Differential(harness.TestCase):
    def setUp(self):
        super().setUp()
        oracle.require()
        harness.tool()
        self.environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": self.folder, "PYTHONHASHSEED": "0"}

    def both(self, definitions, command, stdin=b"", keep=None, options=()):
        kernel, again = (oracle.run_kernel(definitions, command, stdin, self.environment, randomise=False)
                         for _ in range(2))
        ours = harness.run_tool(definitions, command, ["--raw-strings", *options], stdin, self.environment, randomise=False)
        for seen in (kernel, again, ours):
            seen.hits = keep(seen.hits) if keep else seen.hits
        self.assertGreater(len(kernel.hits), 0, "the kernel saw nothing: the test asks for the wrong place")
        self.assertEqual(kernel.counts(), again.counts(), "two kernel runs differ: this command cannot be compared")
        return kernel, again, ours

    def check_tasks(self, kernel, ours, short_lived):
        """Names must be right; a thread or child that ended before anyone could ask for its name is "<...>"."""
        known = {hit.task for hit in ours.hits} - {UNKNOWN_TASK}
        self.assertLessEqual(known, {hit.task for hit in kernel.hits})
        if not short_lived:
            self.assertTrue(known)

    def check(self, definitions, command, ordered=True, short_lived=False, **more):
        kernel, again, ours = self.both(definitions, command, **more)
        self.assertEqual((ours.returncode, ours.stdout), (kernel.returncode, kernel.stdout), ours.stderr)
        self.assertEqual(ours.counts(), kernel.counts(), ours.stderr)
        self.compare_values(*([comparable(hit) for hit in seen.hits] for seen in (kernel, again, ours)), ordered)
        self.check_tasks(kernel, ours, short_lived)
        return kernel, ours

    def compare_values(self, kernel, again, ours, ordered):
        stable = Counter(kernel) & Counter(again)
        self.assertGreaterEqual(stable.total(), len(kernel) * 0.98, "two kernel runs differ in too many values")
        self.assertEqual(stable - Counter(ours), Counter())
        if not ordered:
            return
        for index, (first, second, mine) in enumerate(zip(kernel, again, ours)):
            if first == second:
                self.assertEqual(first, mine, f"record {index}")

    def subject(self, name, symbols=None):
        """Definitions for a copy of a shape of subject.c; without symbols of its own, offsets of its twin are used."""
        program = self.copy_of(harness.fixture(name))
        definitions = [text.format(program) for text in SUBJECT]
        if symbols:
            twin = Elf(harness.fixture(symbols))
            definitions = [re.sub(r":(\w+) ", lambda m: f":{twin.offset_of(m[1]):#x} " if m[1] in twin.symbols
                                  else m[0], text, count=2) for text in definitions]
        return program, definitions


class RealPrograms(Differential):
    def test_zsh_frees_and_ends_with_seven(self):
        zsh = self.copy_of(harness.need("zsh"))
        job = "for i in {1..100}; do a=$i; unset a; done; exit 7"
        kernel, _ = self.check([f"p:zfree_entry {zsh}:zfree %ip %ax"], [zsh, "-fc", job])
        self.assertEqual(kernel.returncode, 7)

    def test_zsh_many_functions_at_once(self):
        zsh = self.copy_of(harness.need("zsh"))
        definitions = [f"p:assign {zsh}:assignsparam name=+0(%di):string value=+0(%si):string flags=%dx:x32",
                       f"p:set {zsh}:setsparam name=+0(%di):string value=+0(%si):string",
                       f"p:unset {zsh}:unsetparam_pm %si:s32 %dx:s32",
                       f"p:dup {zsh}:ztrdup text=+0(%di):string", f"p:alloc {zsh}:zalloc size=%di:u64",
                       f"p:free {zsh}:zfree", f"p:strfree {zsh}:zsfree", f"p:list {zsh}:execlist %si:s32",
                       f"p:heap {zsh}:zhalloc size=%di:u64", f"p:hash {zsh}:hasher text=+0(%di):string"]
        job = "typeset -A t; for i in {1..30}; do t[$i]=x$i; a=$i; unset a; done; print ${#t}; f() { return 3 }; f"
        self.check(definitions, [zsh, "-fc", job])

    def test_zsh_inside_functions(self):
        zsh = self.copy_of(harness.need("zsh"))
        places = instruction_offsets(zsh, "hasher")[1:] + instruction_offsets(zsh, "ztrdup")[1:8]
        places = places if harness.LONG else places[::3]
        definitions = [f"p:at{index} {zsh}:{place} %ax %cx %dx %ip" for index, place in enumerate(places)]
        self.check(definitions, [zsh, "-fc", "for i in {1..3}; do a$i=$i; done; true"])

    def test_bash(self):
        bash = self.copy_of(harness.need("bash"))
        definitions = [f"p:word {bash}:make_word text=+0(%di):string", f"p:malloc {bash}:xmalloc bytes=%di:u64",
                       f"p:bind {bash}:bind_variable name=+0(%di):string value=+0(%si):string flags=%dx:s32"]
        job = "for i in 1 2 3 4 5; do a=$i; b=$a$a; done; echo $b; exit 9"
        self.check(definitions, [bash, "-c", job], keep=without_parent)

    def test_bash_with_forks_and_pipes(self):
        bash = self.copy_of(harness.need("bash"))
        job = "for i in 1 2 3; do (a=$i; b=$(echo $a)); done; echo x | (read y; echo $y)"
        definitions = [f"p:bind {bash}:bind_variable name=+0(%di):string value=+0(%si):string"]
        self.check(definitions, [bash, "-c", job], ordered=False, keep=without_parent)

    def test_sqlite(self):
        sqlite = self.copy_of(harness.need("sqlite3"))
        library = self.library_of(sqlite, "libsqlite3")
        definitions = [f"p:prepare {library}:sqlite3_prepare_v2 sql=+0(%si):string", f"p:step {library}:sqlite3_step",
                       f"p:finalize {library}:sqlite3_finalize", f"p:malloc {library}:sqlite3_malloc64 bytes=%di:u64"]
        job = b"create table t(a,b);\ninsert into t values(1,'x'),(2,'y');\nselect sum(a),b from t group by b;\n"
        self.check(definitions, [sqlite, ":memory:"], stdin=job)

    def test_python_mallocs(self):
        python = self.copy_of(harness.need(os.path.realpath("/usr/bin/python3")))
        libc = self.library_of(python, "libc.so")
        self.check([f"p:malloc {libc}:malloc size=%di:u64"], [python, "-S", "-E", "-c", "print(1)"])

    def test_gcc_compiles_a_file(self):
        gcc = self.copy_of(harness.need("gcc"))
        libc = self.library_of(gcc, "libc.so")
        source = self.write("small.c", "int add(int a, int b) { return a + b; }\n")
        self.environment["GCC_EXEC_PREFIX"] = "/usr/lib/gcc/"
        definitions = [f"p:getenv {libc}:getenv name=+0(%di):string c=$comm",
                       f"p:main {libc}:__libc_start_main argc=%si:s32 c=$comm"]
        kernel, _ = self.check(definitions, [gcc, "-pipe", "-c", source, "-o", self.path("small.o")], ordered=False)
        self.assertEqual((kernel.returncode, kernel.stderr), (0, b""))
        self.assertGreater(kernel.counts()["main"], 2, "gcc, cc1 and as")

    def library_of(self, program, name):
        """A copy of a library that only this test's commands use."""
        listing = subprocess.check_output(["ldd", program], text=True)
        path = re.search(rf"(/\S*{re.escape(name)}\S*)", listing)
        if not path:
            raise unittest.SkipTest(f"{program} does not use {name}")
        folder = self.path("lib")
        os.makedirs(folder, exist_ok=True)
        self.environment["LD_LIBRARY_PATH"] = folder
        return shutil.copy(path[1], folder)


def without_parent(hits):
    """A shell stores the process id of its parent, another one in each run, and allocates by how many digits it has."""
    kept = []
    storing = False
    for hit in hits:
        storing = 'name="PPID"' in hit.rest or (storing and hit.event == "malloc")
        if not storing:
            kept.append(hit)
    return kept


def instruction_offsets(program, symbol):
    """File offsets of the instructions of a function, by objdump up to the first return."""
    elf = Elf(program)
    start = elf.symbols[symbol]
    text = subprocess.check_output(["objdump", "-d", "--no-show-raw-insn", f"--start-address={start:#x}",
                                    f"--stop-address={start + 0x80:#x}", program], text=True)
    offsets = []
    for line in text.splitlines():
        match = re.match(r"\s*([0-9a-f]+):\t(\S+)", line)
        if match:
            offsets.append(f"{elf.offset_of_address(int(match[1], 16)):#x}")
            if match[2].startswith("ret"):
                break
    return offsets


class Shapes(Differential):
    """The same program in every form a linker makes."""

    def compare_shape(self, name, symbols=None):
        program, definitions = self.subject(name, symbols)
        self.check(definitions, [program, "calls", "23"])

    def test_pie(self):
        self.compare_shape("subject")

    def test_non_pie(self):
        self.compare_shape("subject_non_pie")

    def test_stripped(self):
        self.compare_shape("subject_stripped", "subject")

    def test_without_section_headers(self):
        self.compare_shape("subject_sectionless", "subject")

    def test_static(self):
        self.compare_shape("subject_static")

    def test_static_pie(self):
        self.compare_shape("subject_static_pie")

    def test_static_pie_stripped(self):
        self.compare_shape("subject_static_pie_stripped", "subject_static_pie")

    def test_musl(self):
        self.compare_shape("subject_musl")

    def test_musl_static(self):
        self.compare_shape("subject_musl_static")


class Processes(Differential):
    """Threads, children and libraries that come later."""

    def each_shape(self):
        for name in ("subject", "subject_static", "subject_musl", "subject_musl_static"):
            try:
                program, definitions = self.subject(name)
            except unittest.SkipTest:
                continue
            yield name, program, definitions

    def test_threads(self):
        for name, program, definitions in self.each_shape():
            with self.subTest(shape=name):
                kernel, ours = self.check(definitions, [program, "threads", "6", "40"], ordered=False,
                                          short_lived=True)
                self.assertEqual(len({hit.tid for hit in ours.hits}), len({hit.tid for hit in kernel.hits}))
                self.check_each_thread(ours)

    def check_each_thread(self, ours):
        """One thread's records are in the order of its calls."""
        for tid in {hit.tid for hit in ours.hits}:
            numbers = [int(re.search(r"arg1=0x([0-9a-f]+)", hit.rest)[1], 16) for hit in ours.hits
                       if hit.tid == tid and hit.event == "numbers"]
            self.assertEqual(numbers, list(range(40)), f"thread {tid}")

    def test_forks(self):
        for name, program, definitions in self.each_shape():
            with self.subTest(shape=name):
                kernel, ours = self.check(definitions, [program, "forks", "5", "7"])
                self.assertEqual(len({hit.tid for hit in ours.hits}), len({hit.tid for hit in kernel.hits}))

    def test_vfork(self):
        for name, program, definitions in self.each_shape():
            with self.subTest(shape=name):
                kernel, ours = self.check(definitions, [program, "vfork", "5"])
                self.assertEqual(len({hit.tid for hit in ours.hits}), len({hit.tid for hit in kernel.hits}))

    def test_constructor_of_a_loaded_library(self):
        library = self.copy_of(harness.fixture("libplugin.so"))
        host = self.copy_of(harness.fixture("plugin_host"))
        definitions = [f"p:started {library}:plugin_started value=%di:s32",
                       f"p:call {library}:plugin_call text=+0(%di):string"]
        kernel, _ = self.check(definitions, [host, library, "3"])
        self.assertEqual(kernel.counts(), {"started": 3, "call": 3})

    def test_needed_library_before_its_constructors(self):
        program = self.copy_of(harness.fixture("subject"))
        libc = glob.glob("/lib/x86_64-linux-gnu/libc.so.6")
        if not libc:
            self.skipTest("no glibc at the usual place")
        os.makedirs(self.path("lib"))
        copy = shutil.copy(os.path.realpath(libc[0]), self.path("lib/libc.so.6"))
        self.environment["LD_LIBRARY_PATH"] = self.path("lib")
        self.check([f"p:puts {copy}:puts text=+0(%di):string", f"p:init {copy}:__libc_start_main argc=%si:s32"],
                   [program, "calls", "2"])

    def test_several_definitions_at_one_place(self):
        program = self.copy_of(harness.fixture("subject"))
        definitions = [f"p:first {program}:take_text %si", f"p:second {program}:take_text %di",
                       f"p:third {program}:take_text +0(%di):string"]
        self.check(definitions, [program, "calls", "3"])


if __name__ == "__main__":
    harness.main()
