# SPDX-License-Identifier: MIT
"""Programs' uses of their C library, with probes in it: named functions counted against the kernel's own uprobes, and all
functions of the library at once, under the tool and under LD_PRELOAD. Output, exit code and counts must be those without
probes. fixtures/libc_cases.c has the modes; UPROBE_TEST_LONG=1 repeats every comparison.
"""
import os
import re
import shutil
import struct
import subprocess
import time
import unittest

import harness
import oracle

# Taken off the command line before unittest sees it.
REPEATS = 10 if harness.LONG else 1

# mode -> functions of libc whose counts do not differ from run to run
COUNTED = {
    "memory": "malloc calloc realloc free aligned_alloc",
    "blocks": "malloc write",
    "printing": "vfprintf snprintf vsnprintf fprintf fputs fwrite",
    "files": "open read write close pread64 lseek64 fdopen getline unlink",
    "sorting": "qsort qsort_r bsearch malloc free",
    "words": "getenv setenv setlocale iconv_open iconv regcomp getaddrinfo newlocale uselocale strcoll mbstowcs",
    "clocks": "clock_gettime nanosleep usleep strftime gmtime_r",
    "floating": "snprintf malloc free vfprintf",
    "jumps": "_setjmp __sigsetjmp siglongjmp raise sigprocmask sigaction",
    "contexts": "getcontext makecontext swapcontext malloc",
    "processes": "fork vfork clone execl _exit exit waitpid",
    "spawning": "system popen pclose execve waitpid",
    "ends_by_exit": "exit _exit __cxa_finalize write",
    "ends_at_once": "_exit malloc",
    "ends_quickly": "_exit malloc",
    "ends_by_abort": "abort raise sigprocmask",
    "signals_killing": "fork raise abort waitpid",
    "signals": "sigaction sigprocmask pthread_sigmask sigsuspend sigwait sigwaitinfo sigqueue sigpending malloc raise",
    "waiting": "select pselect poll ppoll epoll_wait epoll_pwait read write setitimer",
    "threads": "pthread_create pthread_setspecific pthread_exit malloc free",
    "cancelling": "pthread_create pthread_cancel pthread_join",
    "loading": "dlopen dlsym dladdr dlclose dlerror",
    "timer_storm": "setitimer sigaction",
    "child_storm": "fork sigaction",
    "thread_storm": "pthread_create pthread_kill pthread_join",
}
# The counts of these cannot be taken from the kernel: the symbol is a resolver there, or has several versions.
CHOSEN = {"blocks": {"memcpy": 100, "memmove": 100, "strlen": 100, "strcmp": 100, "strnlen": 100, "strstr": 100,
                     "strncat": 100},
          "threads": {"pthread_cond_broadcast": 800, "pthread_mutex_lock": 800}, "jumps": {"longjmp": 40},
          "spawning": {"posix_spawnp": 4}, "ends_quickly": {"quick_exit": 1}}
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "HOME": "/"}
E_ENTRY = 24  # in the ELF header


def own_libc(folder):
    """A copy of the C library with an inode of its own, so that only the test's programs run it."""
    listing = subprocess.check_output(["ldd", harness.need("sh")], text=True)
    found = re.search(r"(/\S*/libc\.so\.6)", listing)
    if not found:
        raise unittest.SkipTest("not a glibc system")
    os.mkdir(os.path.join(folder, "lib"))
    return shutil.copy(os.path.realpath(found[1]), os.path.join(folder, "lib", "libc.so.6"))


class LibcCase(harness.TestCase):
    program_name = "libc_cases"

    def setUp(self):
        super().setUp()
        harness.tool()
        os.chmod(self.folder, 0o755)
        self.program = self.copy_of(harness.fixture(self.program_name))
        self.environment = dict(ENVIRONMENT)

    def functions_of(self, path):
        seen = harness.run([harness.tool(), "-x", path, "-l"])
        self.assertEqual(seen.returncode, 0, seen.stderr)
        return self.write("all", seen.stdout.decode())

    def assert_same(self, seen, plain, what):
        ours = [line for line in seen.stderr.splitlines(keepends=True) if not line.startswith(b"uprobe-run: ")]
        self.assertEqual((what, seen.returncode, seen.stdout, b"".join(ours)),
                         (what, plain.returncode, plain.stdout, plain.stderr))

    def preloaded(self, command, variables):
        """Reads the trace as soon as the command has ended; after a death by a signal the rest comes a little later."""
        trace = self.path("preloaded")
        seen = harness.run(command, env={**self.environment,
                                         **harness.preloaded(UPROBE_OUTPUT=trace, UPROBE_BUFFER_SIZE="16M"), **variables})
        if seen.returncode < 0:
            time.sleep(1)
        with open(trace, encoding="latin-1", newline="") as file:
            seen.hits = harness.parse_trace(file.read())
        os.remove(trace)
        return seen

    def check_all_at_once(self, command, target, preload=True):
        plain = harness.run(command, env=self.environment)
        listed = self.functions_of(target)
        for _ in range(REPEATS):
            seen = harness.run_tool([], command, ["-q", "-b", "16M", "-i", listed], env=self.environment)
            self.assert_same(seen, plain, "all at once under the tool")
            self.assertGreater(len(seen.hits), 0)
            if preload:
                seen = self.preloaded(command, {"UPROBE_PROBES_FILE": listed})
                self.assert_same(seen, plain, "all at once under LD_PRELOAD")
                self.assertGreater(len(seen.hits), 0)


class Modes(LibcCase):
    def check(self, mode):
        command = [self.program, mode]
        libc = own_libc(self.folder)
        self.environment["LD_LIBRARY_PATH"] = self.path("lib")
        plain = harness.run(command, env=self.environment)
        self.assertNotIn(plain.returncode, (2, 99), "the fixture does not work alone")
        counted = [f"p:{name} {libc}:{name}" for name in COUNTED[mode].split()]
        chosen = [f"p:{name} {libc}:{name}" for name in CHOSEN.get(mode, ())]
        expected = oracle.run_kernel(counted, command, env=self.environment) if not oracle.available() else None
        for _ in range(REPEATS):
            tool = harness.run_tool(counted + chosen, command, ["-q"], env=self.environment)
            self.assert_same(tool, plain, "named functions under the tool")
            self.check_counts(mode, tool.counts(), expected)
            seen = self.preloaded(command, {"UPROBE_PROBES": "\n".join(counted + chosen)})
            self.assert_same(seen, plain, "named functions under LD_PRELOAD")
            self.check_counts(mode, seen.counts(), expected)
        self.check_all_at_once(command, libc)

    def check_counts(self, mode, counts, expected):
        for name, least in CHOSEN.get(mode, {}).items():
            self.assertGreaterEqual(counts.pop(name, 0), least, name)
        if expected:
            self.assertEqual(counts, expected.counts())


class StaticModes(LibcCase):
    """One file with all of libc in it and a symbol for each of its inner functions."""
    program_name = "libc_cases_static"

    def check(self, mode):
        self.check_all_at_once([self.program, mode], self.program, preload=False)


class MuslModes(StaticModes):
    program_name = "libc_cases_musl_static"


class Resolvers(LibcCase):
    def test_a_choice_outside_the_library_is_said(self):
        """gettimeofday is the vDSO's, which is no file."""
        libc = own_libc(self.folder)
        self.environment["LD_LIBRARY_PATH"] = self.path("lib")
        seen = harness.run_tool([f"p:g {libc}:gettimeofday"], [self.program, "clocks"], env=self.environment)
        self.assertIn(b"chose a function of another object", seen.stderr)


class Throwing(LibcCase):
    program_name = "throwing"

    def test_named_functions(self):
        plain = harness.run([self.program], env=self.environment)
        definitions = [f"p:{name} {self.program}:{name} %di:s32" for name in ("thrower", "middle")]
        seen = harness.run_tool(definitions, [self.program], ["-q"], env=self.environment)
        self.assert_same(seen, plain, "thrower and middle")
        self.assertEqual(seen.counts(), {"thrower": 251, "middle": 251})

    def test_all_at_once(self):
        listing = subprocess.check_output(["ldd", self.program], text=True)
        for name in ("libstdc++", "libgcc_s", "libc"):
            found = re.search(rf"(/\S*/{re.escape(name)}\.so\S*)", listing)
            if found:
                with self.subTest(library=name):
                    self.check_all_at_once([self.program], found[1])
        self.check_all_at_once([self.program], self.program)


class Python(LibcCase):
    """The example of the README: at the moment when the command returns, as many lines as the kernel has hits."""
    command = ["/usr/bin/python3", "-c", "print(1)"]

    def setUp(self):
        super().setUp()
        oracle.require()
        if not os.path.exists(self.command[0]):
            self.skipTest("no /usr/bin/python3")
        self.libc = own_libc(self.folder)
        self.environment["LD_LIBRARY_PATH"] = self.path("lib")
        self.environment["PYTHONHASHSEED"] = "0"
        self.definition = f"p:m {self.libc}:malloc %di"

    def as_kernel(self, wrapper=()):
        """Both runs load the library: one more variable and object would cost the program allocations of its own."""
        variables = harness.preloaded(UPROBE_PROBES=self.definition, UPROBE_OUTPUT=self.path("preloaded"),
                                      UPROBE_BUFFER_SIZE="16M")
        expected = oracle.run_kernel([self.definition], self.command,
                                     env={**self.environment, **variables, "UPROBE_DISABLE": "1"})
        variables["XPROBE_DISABLE"] = "1"
        if wrapper:
            seen = harness.run([*wrapper, *self.command], env={**self.environment, **variables})
            with open(self.path("preloaded"), encoding="latin-1") as file:
                seen.hits = harness.parse_trace(file.read())
        else:
            seen = self.preloaded(self.command, variables)
        self.assertEqual((seen.returncode, seen.stdout, seen.stderr), (0, b"1\n", b""))
        self.assertGreater(len(expected.hits), 500)
        self.assertEqual([hit.arguments for hit in seen.hits], [hit.arguments for hit in expected.hits])

    def test_every_allocation_under_preload(self):
        self.as_kernel()

    def test_every_allocation_under_the_tool(self):
        expected = oracle.run_kernel([self.definition], self.command, env=self.environment)
        seen = harness.run_tool([self.definition], self.command, ["-q"], env=self.environment)
        self.assertEqual([hit.arguments for hit in seen.hits], [hit.arguments for hit in expected.hits])

    def test_a_filter_against_tracing(self):
        """A filter answers ptrace and process_vm_readv with EPERM; the library must do without them."""
        filtered = harness.fixture("refuses_tracing")
        asks = "import ctypes; print(ctypes.CDLL(None).ptrace(0, 0, 0, 0))"
        seen = harness.run([filtered, "/usr/bin/python3", "-c", asks])
        self.assertEqual(seen.stdout, b"-1\n", "the filter works")
        variables = harness.preloaded(UPROBE_PROBES=self.definition, UPROBE_OUTPUT=self.path("filtered"))
        expected = self.preloaded(self.command, {"UPROBE_PROBES": self.definition})
        seen = harness.run([filtered, *(f"{name}={value}" for name, value in variables.items()), *self.command],
                           env=self.environment)
        with open(self.path("filtered"), encoding="latin-1") as file:
            hits = harness.parse_trace(file.read())
        self.assertEqual((seen.returncode, seen.stdout, seen.stderr), (0, b"1\n", b""))
        self.assertEqual(len(hits), len(expected.hits))


MUSL_LACKS = {"contexts"}


def add_modes():
    for mode in COUNTED:
        for case in (Modes, StaticModes, MuslModes):
            if case is MuslModes and mode in MUSL_LACKS:
                continue

            def test(self, mode=mode):
                self.check(mode)
            setattr(case, f"test_{mode}", test)


add_modes()

if __name__ == "__main__":
    harness.main()
