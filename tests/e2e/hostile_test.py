# SPDX-License-Identifier: MIT
"""Programs that block signals, close descriptors, forbid system calls or live on tiny stacks: they must end exactly as
they do alone, and every call must be in the trace. tests/e2e/fixtures/hostile.c has the programs.
"""
import os
import re
import signal

import harness

# A mode's calls of `probed`, where the program itself cannot print them: its exit code says so.
COUNT_IN_EXIT_CODE = {"descriptors_closed"}


class Hostile(harness.TestCase):
    program_name = "hostile"

    def setUp(self):
        super().setUp()
        harness.tool()
        self.program = self.copy_of(harness.fixture(self.program_name))
        self.definitions = [f"p:probed {self.program}:probed %di:s64 c=$comm", f"p:again {self.program}:probed %ip",
                            f"p:text {self.program}:probed_text +0(%di):string +0(%di):u8",
                            f"p:middle {self.program}:red_zone_middle %di:s64 %flags:b1@10/32 %flags:b1@0/32"]

    def check(self, mode):
        plain = harness.run([self.program, mode])
        self.assertNotIn(plain.returncode, (2, -11), "the fixture does not work alone")
        seen = harness.run_tool(self.definitions, [self.program, mode], ["-b", "16M"])
        self.assertEqual(seen.returncode, plain.returncode, (seen.stdout, seen.stderr))
        if mode != "timer_storm":  # how often the timer fires is not defined
            self.assertEqual(seen.stdout, plain.stdout)
        self.check_trace(mode, seen)

    def check_trace(self, mode, seen):
        if mode in COUNT_IN_EXIT_CODE:
            expected = seen.returncode
        else:  # a program that executes itself prints one line for each
            expected = sum(int(number) for number in re.findall(rb"calls=(\d+)", seen.stdout))
        counts = seen.counts()
        self.assertEqual((counts.get("probed"), counts.get("again")), (expected, expected), seen.stderr)
        # a thread that ended before anyone asked has no name in the first column; $comm is read at the hit itself
        self.assertLessEqual({hit.task for hit in seen.hits}, {self.program_name, "<...>", "exe"})
        names = {hit.rest.rpartition(" c=")[2] for hit in seen.hits if hit.event == "probed"}
        self.assertLessEqual(names, {f'"{self.program_name}"', '"exe"'})
        if mode == "edges":
            texts = [hit.arguments for hit in seen.hits if hit.event == "text"]
            self.assertEqual(texts, ["arg1=(fault) arg2=99", 'arg1="edgcu" arg2=101', "arg1=(fault) arg2=0",
                                     "arg1=(fault) arg2=0", "arg1=(fault) arg2=0", "arg1=(fault) arg2=0"])
        if mode == "state":
            middles = [hit.arguments for hit in seen.hits if hit.event == "middle"]
            self.assertEqual(middles, [f"arg1={n} arg2=1 arg3=1" for n in range(1, 1000)])

    def check_blocked_start(self, mode):
        def hostile_start():
            signal.pthread_sigmask(signal.SIG_SETMASK, range(1, 32))
            for number in (signal.SIGTRAP, signal.SIGSEGV, signal.SIGBUS, signal.SIGCHLD):
                signal.signal(number, signal.SIG_IGN)
        plain = harness.run([self.program, mode], before_exec=hostile_start)
        words = [harness.tool(), "-o", self.path("trace"), "-p", self.definitions[0], "--", self.program, mode]
        seen = harness.run(words, before_exec=hostile_start)
        self.assertEqual((seen.returncode, seen.stdout), (plain.returncode, plain.stdout), seen.stderr)

    def test_started_with_signals_blocked_and_ignored(self):
        for mode in ("plain", "all_blocked", "trap_ignored", "forks_from_threads", "handler_with_full_mask"):
            with self.subTest(mode=mode):
                self.check_blocked_start(mode)

    # a program's own fault under a blocked signal kills it, whatever handler it has
    def test_own_trap_while_it_is_blocked(self):
        self.check_blocked_start("own_trap_handler")

    def test_own_fault_while_it_is_blocked(self):
        self.check_blocked_start("own_fault_handler")


def add_modes():
    """A test for each mode that the source lists."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures/hostile.c")
    with open(source, encoding="ascii") as file:
        for mode in re.findall(r'^    \{"(\w+)", \w+\},$', file.read(), re.M):
            def test(self, mode=mode):
                self.check(mode)
            setattr(Hostile, f"test_{mode}", test)


add_modes()


class HostileStatic(Hostile):
    """The same in a program without a dynamic linker."""
    program_name = "hostile_static"


if __name__ == "__main__":
    harness.main()
