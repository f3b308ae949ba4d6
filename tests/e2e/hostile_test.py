"""Programs that block signals, close descriptors, forbid system calls or live on tiny stacks: they must end exactly as
they do alone, and every call must be in the trace. tests/e2e/fixtures/hostile.c has the programs.
"""
import os
import re
import signal

import harness

# A mode's calls of `probed`, where the program itself cannot print them: its exit code says so.
COUNT_IN_EXIT_CODE = {"descriptors_closed"}
# The child after exec is a program that nobody follows in this version.
COUNT_OF_THE_PARENT = {"reexecutes": 1}


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
        seen = harness.run_tool(self.definitions, [self.program, mode])
        self.assertEqual(seen.returncode, plain.returncode, (seen.stdout, seen.stderr))
        if mode != "timer_storm":  # how often the timer fires is nobody's promise
            self.assertEqual(seen.stdout, plain.stdout)
        self.check_trace(mode, seen)

    def check_trace(self, mode, seen):
        if mode in COUNT_IN_EXIT_CODE:
            expected = seen.returncode
        elif mode in COUNT_OF_THE_PARENT:
            expected = COUNT_OF_THE_PARENT[mode]
        else:
            expected = int(re.search(rb"calls=(\d+)", seen.stdout.splitlines()[-1])[1])
        counts = seen.counts()
        self.assertEqual((counts.get("probed"), counts.get("again")), (expected, expected), seen.stderr)
        self.assertEqual({hit.task for hit in seen.hits}, {self.program_name})
        wrong = [hit for hit in seen.hits if hit.event == "probed" and not hit.rest.endswith(f'c="{self.program_name}"')]
        self.assertEqual(wrong, [])
        if mode == "edges":
            texts = [hit.arguments for hit in seen.hits if hit.event == "text"]
            self.assertEqual(texts, ["arg1=(fault) arg2=99", 'arg1="edgcu" arg2=101', "arg1=(fault) arg2=0",
                                     "arg1=(fault) arg2=0", "arg1=(fault) arg2=0", "arg1=(fault) arg2=0"])
        if mode == "state":
            middles = [hit.arguments for hit in seen.hits if hit.event == "middle"]
            self.assertEqual(middles, [f"arg1={n} arg2=1 arg3=1" for n in range(1, 1000)])

    def test_started_with_signals_blocked_and_ignored(self):
        def hostile_start():
            signal.pthread_sigmask(signal.SIG_SETMASK, range(1, 32))
            for number in (signal.SIGTRAP, signal.SIGSEGV, signal.SIGBUS, signal.SIGCHLD):
                signal.signal(number, signal.SIG_IGN)
        for mode in ("plain", "own_trap_handler", "own_fault_handler", "forks_from_threads"):
            with self.subTest(mode=mode):
                plain = harness.run([self.program, mode], before_exec=hostile_start)
                output = self.path(f"trace.{mode}")
                words = [harness.tool(), "-o", output, "-p", self.definitions[0], "--", self.program, mode]
                seen = harness.run(words, before_exec=hostile_start)
                self.assertEqual((seen.returncode, seen.stdout), (plain.returncode, plain.stdout), seen.stderr)


def add_modes():
    """A test for each mode that the source lists."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures/hostile.c")
    with open(source, encoding="ascii") as file:
        for mode in re.findall(r'^    \{"(\w+)", \w+\},$', file.read(), re.M):
            setattr(Hostile, f"test_{mode}", lambda self, mode=mode: self.check(mode))


add_modes()


class HostileStatic(Hostile):
    """The same in a program without a dynamic linker."""
    program_name = "hostile_static"


if __name__ == "__main__":
    harness.main()
