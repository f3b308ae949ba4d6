# SPDX-License-Identifier: MIT
"""Every way in which code of a file gets into a process: a probe there is hit from the first instruction on, as often
as the kernel counts it, and the program behaves as without probes.

The programs are fixtures/loader/*.c, compiled here; each prints its results and is run alone and probed.
"""
import collections
import os
import re
import shutil
import subprocess
import unittest

import harness
import oracle
from elf_reader import Elf

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures", "loader")
SUMMARY = re.compile(r"^uprobe-run: (?:\S+/)?(\S+) \S+: ([\d,]+) hits?(.*)", re.M)
FLAGS = ["-O1", "-g", "-fcf-protection=none"]
EVERYTHING = ("lib_resolver", "lib_begin", "lib_end", "lib_work", "lib_plain_choice", "lib_leaf", "lib_inner")


def file_of(program, name):
    """The file of a library that a program needs."""
    listing = subprocess.check_output(["ldd", program], text=True)
    match = re.search(rf"(/\S*/{name}\S*)", listing)
    if not match:
        raise unittest.SkipTest(f"{program} does not need {name}")
    return os.path.realpath(match[1])


class LoaderCase(harness.TestCase):
    def build(self, source, name, *flags, compiler="gcc"):
        path = self.path(name)
        subprocess.run([harness.need(compiler), *FLAGS, os.path.join(SOURCES, source), "-o", path, *flags], check=True)
        return path

    def library(self, name="library.so", *flags, **more):
        return self.build("library.c", name, "-fPIC", "-shared", *flags, **more)

    def opener(self):
        return self.build("opener.c", "opener", "-pthread", "-ldl")

    def probed(self, definitions, command, env=None, before=None):
        """Alone and probed: the same output and exit code. Returns event -> hits of the probed run."""
        if before:
            before()
        alone = harness.run(command, env=env)
        if before:
            before()
        listed = self.write("list", "\n".join(definitions) + "\n")
        seen = harness.run(harness.tracer("-v", "-o", self.path("trace"), "-b", "4M", "-i", listed, "--", *command), env=env)
        self.assertEqual((seen.stdout, seen.returncode), (alone.stdout, alone.returncode), seen.stderr)
        counts = {}
        for event, hits, rest in SUMMARY.findall(seen.stderr.decode()):
            self.assertNotIn("lost", rest, seen.stderr)
            counts[event] = int(hits.replace(",", ""))
        self.output = alone.stdout.decode()
        return counts

    def as_the_kernel(self, definitions, command, env=None):
        """The same, and every event as often as the kernel's uprobe has it, which on a crowded machine may miss one at a program's
        beginning and is then asked once more."""
        counts = self.probed(definitions, command, env)
        hit = {event: hits for event, hits in counts.items() if hits}
        kernel = oracle.run_kernel(definitions, command, env=env).counts()
        if kernel != hit:
            kernel = oracle.run_kernel(definitions, command, env=env).counts()
        self.assertEqual(hit, kernel)
        return counts

    def events(self, path, symbols=EVERYTHING, prefix=""):
        return [f"p:{prefix}{symbol} {path}:{symbol}" for symbol in symbols]


class Start(LoaderCase):
    """Libraries that the program needs from the start."""

    def needed(self, *flags, compiler="gcc"):
        library = self.library(compiler=compiler)
        program = self.build("linked.c", "linked", library, f"-Wl,-rpath,{self.folder}", *flags, compiler=compiler)
        return library, program

    def test_resolvers_and_constructors(self):
        for flags in ("-Wl,-z,now", "-Wl,-z,lazy"):
            with self.subTest(flags=flags):
                library, program = self.needed(flags)
                counts = self.as_the_kernel(self.events(library), [program])
                self.assertGreater(counts["lib_resolver"], 0)
                self.assertEqual((counts["lib_begin"], counts["lib_end"], counts["lib_work"]), (1, 1, 1))

    def test_what_an_ifunc_chose_beside_the_function_itself(self):
        library, program = self.needed()
        definitions = [f"p:{name} {library}:{symbol}" for name, symbol in
                       (("a", "lib_plain_choice"), ("b", "lib_chosen"), ("c", "lib_plain_choice"), ("d", "lib_chosen"))]
        counts = self.probed(definitions, [program])
        self.assertEqual(counts, dict.fromkeys("abcd", 2))
        with open(self.path("trace"), encoding="latin-1") as file:
            events = [hit.event for hit in harness.parse_trace(file.read())]
        self.assertEqual(events, ["d", "c", "b", "a"] * 2, "newest first")

    def test_preloaded_library(self):
        library, opener = self.library(), self.opener()
        counts = self.as_the_kernel(self.events(library), [opener, "compiler", "x"], {"LD_PRELOAD": library})
        self.assertEqual(counts["lib_begin"], 1)

    def test_audit_library_and_program(self):
        audit = self.build("audit.c", "audit.so", "-fPIC", "-shared")
        library, program = self.needed()
        definitions = self.events(library) + [f"p:audit {audit}:audit_counts", f"p:version {audit}:la_version",
                                              f"p:main {program}:main"]
        counts = self.as_the_kernel(definitions, [program], {"LD_AUDIT": audit})
        self.assertEqual((counts["version"], counts["main"]), (1, 1))
        self.assertGreater(counts["audit"], 2)


    SYMBOLS = ("_start", "step", "very_first", "in_array", "early", "late", "main", "at_exit", "on_exit_too",
               "destroyed")

    def test_before_and_after_main(self):
        for name, *flags in (("dynamic",), ("non_pie", "-no-pie"), ("static", "-static"),
                             ("static_pie", "-static-pie")):
            program = self.build("ends.c", name, *flags)
            for words in ([], ["quick"]):
                with self.subTest(name=name, words=words):
                    counts = self.as_the_kernel(self.events(program, self.SYMBOLS), [program, *words])
                    once = self.SYMBOLS[:1] + self.SYMBOLS[2:7] + (() if words else self.SYMBOLS[7:])
                    self.assertEqual([name for name in once if counts[name] != 1], [])


class Opened(LoaderCase):
    """dlopen."""

    def setUp(self):
        super().setUp()
        self.program, self.one = self.opener(), self.library()

    def copies(self, number):
        paths = [shutil.copy(self.one, self.path(f"copy{i}.so")) for i in range(number)]
        return paths, [f"p:w{i} {path}:lib_work" for i, path in enumerate(paths)]

    def test_once(self):
        for mode in ("now", "lazy"):
            with self.subTest(mode=mode):
                counts = self.as_the_kernel(self.events(self.one), [self.program, mode, self.one])
                self.assertEqual((counts["lib_begin"], counts["lib_work"], counts["lib_end"]), (1, 1, 1))
                self.assertGreater(counts["lib_resolver"], 0)

    def test_what_an_ifunc_chose(self):
        """From its first call on, which a constructor makes."""
        for mode, env in (("now", None), ("lazy", None), ("now", {"LIBRARY_CALLS": "1"})):
            with self.subTest(mode=mode, env=env):
                definitions = [f"p:chosen {self.one}:lib_chosen", f"p:choice {self.one}:lib_plain_choice"]
                counts = self.probed(definitions, [self.program, mode, self.one], env)
                self.assertEqual(counts, {"chosen": 2 if env else 1, "choice": 2 if env else 1})

    def test_five_hundred_times(self):
        two = self.library("other.so", "-DOTHER")
        definitions = self.events(self.one) + self.events(two, prefix="other_")
        counts = self.probed(definitions, [self.program, "again", self.one, two])
        for name in ("lib_begin", "lib_resolver", "lib_work", "lib_leaf", "lib_end"):
            self.assertEqual((counts[name], counts["other_" + name]), (250, 250), name)

    def test_at_other_addresses(self):
        counts = self.probed(self.events(self.one), [self.program, "elsewhere", self.one])
        self.assertEqual((counts["lib_begin"], counts["lib_leaf"], counts["lib_end"]), (5, 5, 5))

    def test_many_libraries(self):
        paths, definitions = self.copies(150)
        counts = self.probed(definitions, [self.program, "all", *paths])
        self.assertEqual(counts, {f"w{i}": 1 for i in range(150)})

    def test_from_threads(self):
        paths, definitions = self.copies(80)
        counts = self.probed(definitions, [self.program, "threads", *paths])
        self.assertEqual(counts, {f"w{i}": 1 for i in range(80)})

    def test_in_forked_children(self):
        two = self.library("other.so", "-DOTHER")
        definitions = self.events(self.one) + self.events(two, prefix="other_")
        counts = self.as_the_kernel(definitions, [self.program, "in_children", self.one, two])
        self.assertEqual((counts["lib_work"], counts["other_lib_work"]), (9 + 1, 9 + 2))

    def test_from_a_constructor(self):
        two = self.library("other.so", "-DOTHER")
        definitions = self.events(self.one) + self.events(two, prefix="other_")
        counts = self.as_the_kernel(definitions, [self.program, "now", self.one], {"LIBRARY_OPENS": two})
        self.assertEqual((counts["other_lib_begin"], counts["other_lib_work"], counts["lib_begin"]), (1, 1, 1))

    def test_text_relocations(self):
        library = self.library("text.so", "-DTEXT_RELOCATION", "-Wl,-z,notext")
        offset = Elf(library).offset_of("lib_relocated") + 10
        counts = self.probed([f"p:after {library}:{offset:#x}", f"p:work {library}:lib_work"],
                             [self.program, "now", library])
        self.assertEqual((counts, self.output), ({"after": 1, "work": 1}, "relocated: 77\n118\n"))
        refused = harness.run(harness.tracer("-p", f"p {library}:lib_relocated", "--", self.program, "now", library))
        self.assertEqual(refused.returncode, 125)
        self.assertIn(b"text relocation", refused.stderr)

    def test_namespaces(self):
        counts = self.as_the_kernel(self.events(self.one), [self.program, "namespaces", self.one])
        self.assertEqual((counts["lib_begin"], counts["lib_work"], counts["lib_end"]), (5, 5, 5))

    def test_from_memory(self):
        counts = self.probed(self.events(self.one), [self.program, "from_memory", self.one])
        self.assertEqual(set(counts.values()), {0}, "another file with the same contents")

    def test_replaced_on_disk(self):
        """The definitions mean the file that was there when they were made."""
        old, new = self.path("lib.so"), self.path("new.so")

        def before():
            shutil.copy(self.one, old)
            self.library("new.so", "-DOTHER")
        before()
        counts = self.probed(self.events(old), [self.program, "replaced", old, new, self.path("./lib.so")],
                             before=before)
        self.assertEqual((counts["lib_begin"], counts["lib_work"]), (1, 2), self.output)


    def test_on_an_overlay(self):
        """Where the device numbers in maps are not those of stat."""
        folders = [self.path(name) for name in ("lower", "upper", "work", "merged")]
        for folder in folders:
            os.mkdir(folder)
        shutil.copy(self.one, folders[0])
        options = "lowerdir={},upperdir={},workdir={}".format(*folders)
        mount = ["unshare", "-m", "sh", "-c", f"mount -t overlay none -o {options} {folders[3]} || exit 77\n" + '"$@"', "sh"]
        library = os.path.join(folders[3], "library.so")
        command = [*mount, self.program, "now", library]
        if harness.run(command).returncode == 77:
            self.skipTest("no overlay can be mounted here")
        traced = [*mount, *harness.tracer("-o", self.path("trace"), "-p", f"p:work {library}:lib_work",
                                          "-p", f"p:begin {library}:lib_begin", "--", self.program, "now", library)]
        seen = harness.run(traced)
        self.assertEqual((seen.stdout, seen.returncode), (harness.run(command).stdout, 4), seen.stderr)
        counts = {event: hits for event, hits, _ in SUMMARY.findall(seen.stderr.decode())}
        self.assertEqual(counts, {"work": "1", "begin": "1", "total": "2"} if "total" in counts else {"work": "1", "begin": "1"})


class Musl(LoaderCase):
    """musl's loader: it reports after relocation, and libraries never go."""

    def setUp(self):
        super().setUp()
        self.one = self.library("library.so", "-DNO_IFUNC", compiler="musl-gcc")
        self.two = self.library("other.so", "-DNO_IFUNC", "-DOTHER", compiler="musl-gcc")
        self.program = self.build("opener.c", "opener", "-pthread", compiler="musl-gcc")

    def test_opened(self):
        symbols = [symbol for symbol in EVERYTHING if symbol != "lib_resolver"]
        definitions = self.events(self.one, symbols) + self.events(self.two, symbols, "other_")
        counts = self.as_the_kernel(definitions, [self.program, "now", self.one])
        self.assertEqual((counts["lib_begin"], counts["lib_work"]), (1, 1))
        counts = self.probed(definitions, [self.program, "again", self.one, self.two])
        self.assertEqual((counts["lib_begin"], counts["lib_work"], counts["other_lib_work"]), (1, 250, 250))

    def test_by_hand(self):
        offset = hex(Elf(self.one).offset_of("lib_leaf"))
        for mode, hits in (("by_hand", 5), ("taken_over", 1), ("compiler", 0)):
            with self.subTest(mode=mode):
                counts = self.probed([f"p:leaf {self.one}:lib_leaf"], [self.program, mode, self.one, offset])
                self.assertEqual(counts["leaf"], hits)

    def test_clones(self):
        program = self.build("clones.c", "clones", "-pthread", "-idirafter", "/usr/include",
                             "-idirafter", "/usr/include/x86_64-linux-gnu", compiler="musl-gcc")
        for mode, expected in Clones.CALLS.items():
            with self.subTest(mode=mode):
                self.assertEqual(self.probed([f"p:probed {program}:probed"], [program, mode])["probed"], expected)


class ByHand(LoaderCase):
    """mmap and mprotect without a loader."""

    def setUp(self):
        super().setUp()
        self.program, self.one = self.opener(), self.library()
        self.offset = hex(Elf(self.one).offset_of("lib_leaf"))
        self.leaf = f"p:leaf {self.one}:lib_leaf"

    def run_mode(self, mode):
        return self.probed([self.leaf], [self.program, mode, self.one, self.offset])["leaf"]

    def test_mapped(self):
        self.assertEqual(self.run_mode("by_hand"), 5)
        self.assertEqual(self.output, "22 22\n22\n22\n22\n")

    def test_code_of_the_programs_own_where_a_probe_was(self):
        self.assertEqual(self.run_mode("taken_over"), 1)
        self.assertEqual(self.output, "22\n42 traps 1\n42 traps 2\n42 traps 3\n")

    def test_code_changed_after_a_probe(self):
        self.assertEqual(self.run_mode("changed_after"), 4)
        self.assertEqual(self.output, "22\n41\n41\n41\n")

    def test_text_moved_to_other_memory(self):
        self.run_mode("moved")
        self.assertEqual(self.output, "22\n22\n")

    def test_compiler(self):
        self.run_mode("compiler")
        self.assertEqual(self.output, "84000\n")

    def test_with_the_library_preloaded(self):
        env = {**os.environ, **harness.preloaded(UPROBE_PROBES=self.leaf, UPROBE_OUTPUT=self.path("trace"))}
        for mode, hits in (("by_hand", 5), ("taken_over", 1), ("changed_after", 4)):
            with self.subTest(mode=mode):
                command = [self.program, mode, self.one, self.offset]
                alone, seen = harness.run(command), harness.run(command, env=env)
                self.assertEqual((seen.stdout, seen.returncode), (alone.stdout, alone.returncode), seen.stderr)
                with open(self.path("trace"), encoding="latin-1") as file:
                    self.assertEqual(len(harness.parse_trace(file.read())), hits)
                os.remove(self.path("trace"))


class Private(LoaderCase):
    """Probes in the C library and in the dynamic loader themselves: copies that no other process runs."""

    def setUp(self):
        super().setUp()
        shell = harness.need("sh")
        self.loader = shutil.copy(file_of(shell, "ld-linux-x86-64.so.2"), self.path("loader.so"))
        self.libc = shutil.copy(file_of(shell, "libc.so.6"), self.path("libc.so.6"))
        self.flags = [f"-Wl,--dynamic-linker={self.loader}", f"-Wl,-rpath,{self.folder}"]

    def function_starts(self, path):
        """The starts of functions by unwind information, as file offsets."""
        # its exit code tells of names that it could not look up
        text = subprocess.run([harness.need("readelf"), "--debug-dump=frames", path], capture_output=True, text=True).stdout
        starts = {int(start, 16) for start in re.findall(r" FDE .* pc=([0-9a-f]+)\.\.", text)}
        # that of the signal trampoline begins a byte early, so that it is found by a return address
        return sorted(Elf(path).offset_of_address(start) for start in starts if start % 16 != 15)

    def test_every_function_of_the_loader(self):
        library = self.library()
        opener = self.build("opener.c", "opener", "-pthread", *self.flags)
        starts = self.function_starts(self.loader)
        self.assertGreater(len(starts), 200)
        every = 1 if harness.LONG else 4  # the kernel takes a tenth of a second for each
        counts = self.as_the_kernel([f"p:f{start:x} {self.loader}:{start:#x}" for start in starts[::every]],
                                    [opener, "now", library])
        self.assertGreater(sum(hits > 0 for hits in counts.values()), 100 // every)

    def test_functions_of_the_c_library(self):
        clones = self.build("clones.c", "clones", "-pthread", *self.flags)
        opener = self.build("opener.c", "opener", "-pthread", *self.flags)
        symbols = ("__libc_start_main", "_exit", "exit", "atexit", "on_exit", "__cxa_atexit", "__cxa_finalize", "malloc", "free",
                   "calloc", "mmap", "munmap", "mprotect", "sigprocmask", "pthread_sigmask", "sigaction", "clone",
                   "fork", "_Fork", "vfork", "syscall", "pthread_create", "pthread_join", "unshare",
                   "waitpid", "dlopen", "dlclose", "dlsym", "getenv", "printf", "write")
        known = Elf(self.libc).symbols
        definitions = [f"p:{symbol} {self.libc}:{symbol}" for symbol in symbols if symbol in known]
        modes = [mode for mode in Clones.CALLS if mode != "storm"]
        commands = [f"{clones} {mode};" for mode in modes] + [f"{opener} now {self.library()}"]
        counts = self.as_the_kernel(definitions, ["sh", "-c", " ".join(commands)])  # whose own C library is another file
        self.assertEqual(counts["__libc_start_main"], len(modes) + 1 + 5, "one of them spawns five programs")


class Clones(LoaderCase):
    """Children and threads of every kind, each of which makes a known number of calls."""
    CALLS = {"clone_memory": 20 * 12, "clone_memory_vfork": 20 * 12, "clone_files": 20 * 12, "clone_silent": 20 * 12,
             "clone_many": 8 * 60, "clone3": 20 * 11, "vfork_beside": 2 * 4000 + 200 * 20,
             "vfork_filtered": 2 * 4000 + 200 * 20, "fork": 200, "vfork": 200, "fork_from_threads": 8 * 20 * 11,
             "unshare": 2, "spawn": 5 * 11, "storm": 10000}

    def check(self, program):
        for mode, expected in self.CALLS.items():
            with self.subTest(mode=mode):
                self.assertEqual(self.probed([f"p:probed {program}:probed"], [program, mode])["probed"], expected)

    def test_dynamic(self):
        self.check(self.build("clones.c", "clones", "-pthread"))

    def test_each_child_beside_its_parent_has_its_own_records(self):
        program = self.build("clones.c", "clones", "-pthread")
        for _ in range(20):
            self.assertEqual(self.probed([f"p:probed {program}:probed"], [program, "clone_many"])["probed"], 480)
            with open(self.path("trace"), encoding="utf-8") as trace:
                pids = collections.Counter(re.findall(r"-(\d+) +\[", trace.read()))
            self.assertEqual(sorted(pids.values()), [10] * 8 + [400])

    def test_static(self):
        self.check(self.build("clones.c", "clones", "-pthread", "-static"))


if __name__ == "__main__":
    harness.main()
