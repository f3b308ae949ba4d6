# SPDX-License-Identifier: MIT
"""The semaphores of markers are 0 after each way to end: of the tool, of the program, and of both in different orders. A turn or
some of each; UPROBE_TEST_LONG=1 makes 200."""
import os
import random
import re
import signal
import subprocess
import time

import harness
import markers_test
from harness import tracer

TURNS = 200 if harness.LONG else 2
UP = 1001  # both semaphores of the library


class Ends(markers_test.Markers):
    def setUp(self):
        super().setUp()
        self.both = ["-p", f"{self.library}:sdt:markers:switched", "-p", f"{self.library}:sdt:markers:other"]
        self.mark = f"SEMAPHORES_TEST={os.getpid()}"
        self.environment = {**os.environ, "SEMAPHORES_TEST": str(os.getpid())}

    def launched(self, *words):
        talk = markers_test.Talk(self, *tracer("-q", "-o", self.path("trace"), *words, *self.both), "--",
                                 environment=self.environment)
        self.assertEqual(talk.say("v"), [UP])
        return talk

    def attached(self):
        talk = markers_test.Talk(self)
        self.assertEqual(talk.say("vh"), [0, 0])
        tool = subprocess.Popen([*tracer("-q", "-o", self.path("trace"), *self.both, "-P", str(talk.process.pid))],
                                stderr=subprocess.PIPE, start_new_session=True, env=self.environment)
        self.addCleanup(harness.stop_group, tool)
        harness.wait_until(lambda: talk.say("v") == [UP], "the semaphores to be up")
        return talk, tool

    def kill_tool(self, tool):
        """All of its processes, at once: nothing is left that could do anything for it."""
        def processes():
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as comm, \
                            open(f"/proc/{pid}/environ", encoding="ascii", errors="replace") as environ:
                        is_ours = comm.read().startswith("uprobe") and self.mark in environ.read().split("\0")
                except OSError:
                    continue
                if is_ours:
                    yield int(pid)
        for pid in (*processes(), tool.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        tool.wait(harness.TIMEOUT)

    def end_untraced(self, talk):
        """Of a program whose tool, which has started it, is gone."""
        talk.process.stdin.write(b"q")
        talk.process.stdin.flush()
        self.assertEqual(talk.process.stdout.read(), b"")
        for stream in (talk.process.stdin, talk.process.stdout, talk.process.stderr):
            stream.close()

    def turns(self, way):
        for turn in range(TURNS):
            with self.subTest(turn=turn):
                way()

    def test_the_session_ends(self):
        def way():
            talk = self.launched("-n", "1")
            self.assertEqual(talk.say("h"), [1])
            harness.wait_until(lambda: talk.say("v") == [0], "the semaphores to be down")
            self.assertEqual(talk.say("h"), [0])
            talk.end()
        self.turns(way)

    def test_interrupted(self):
        def way():
            talk, tool = self.attached()
            tool.send_signal(signal.SIGINT)
            tool.communicate(timeout=harness.TIMEOUT)
            self.assertEqual(talk.say("vh"), [0, 0])
            talk.end()
        self.turns(way)

    def test_interrupted_after_fork_and_exec(self):
        def way():
            talk, tool = self.attached()
            self.assertEqual(talk.say("fvh"), [0, UP, 1])
            talk.process.stdin.write(b"x")
            harness.wait_until(lambda: talk.say("v") == [UP], "the new program's semaphores to be up")
            tool.send_signal(signal.SIGINT)
            tool.communicate(timeout=harness.TIMEOUT)
            self.assertEqual(talk.say("vh"), [0, 0])
            talk.end()
        self.turns(way)

    def test_another_tool_takes_them_down(self):
        """As the kernel does for a uprobe that it has put there after the tool: the tool counts them up again, and says nothing."""
        talk, tool = self.attached()
        with open(f"/proc/{talk.process.pid}/maps", encoding="ascii") as maps:
            begin = int(next(line for line in maps if line.endswith(self.library + "\n")).split("-")[0], 16)
        symbols = subprocess.check_output(["nm", self.library], text=True)
        with open(f"/proc/{talk.process.pid}/mem", "r+b", buffering=0) as memory:
            for name in ("switched_semaphore", "other_semaphore"):
                memory.seek(begin + int(re.search(rf"^(\w+) \w {name}$", symbols, re.M)[1], 16))
                memory.write(bytes(2))
        harness.wait_until(lambda: talk.say("v") == [UP], "the semaphores to be up again")
        self.assertEqual(talk.say("h"), [1])
        tool.send_signal(signal.SIGINT)
        self.assertEqual(tool.communicate(timeout=harness.TIMEOUT)[1], b"")
        self.assertEqual(talk.say("vh"), [0, 0])
        talk.end()

    def test_killed(self):
        """The first hit tells: it is still recorded, or lost, and is the last for which the program makes arguments."""
        def way():
            talk = self.launched()
            self.assertEqual(talk.say("h"), [1])
            self.kill_tool(talk.process)
            self.assertEqual(talk.say("hvh"), [1, 0, 0])
            self.end_untraced(talk)
        self.turns(way)

    def test_killed_before_any_hit(self):
        def way():
            talk = self.launched()
            self.kill_tool(talk.process)
            self.assertEqual(talk.say("hvh"), [1, 0, 0])
            self.end_untraced(talk)
        self.turns(way)

    def test_killed_after_fork(self):
        def way():
            talk = self.launched()
            self.assertEqual(talk.say("fvh"), [0, UP, 1])
            self.kill_tool(talk.process)
            self.assertEqual(talk.say("hvh"), [1, 0, 0])
            self.end_untraced(talk)
        self.turns(way)

    def test_killed_before_exec(self):
        def way():
            talk = self.launched()
            self.kill_tool(talk.process)
            talk.process.stdin.write(b"x")
            self.assertEqual(talk.say("vh"), [0, 0])
            self.end_untraced(talk)
        self.turns(way)

    def test_attached_and_killed(self):
        def way():
            talk, tool = self.attached()
            self.kill_tool(tool)
            tool.stderr.close()
            harness.wait_until(lambda: talk.say("hv")[1] == 0, "the tool to be dead, and a hit to tell")
            self.assertEqual(talk.say("h"), [0])
            talk.end()
        self.turns(way)

    def test_killed_while_it_ends(self):
        """The probe may be gone before the semaphores: these are down then, before the tool can be killed."""
        def way():
            talk, tool = self.attached()
            tool.send_signal(signal.SIGINT)
            time.sleep(random.uniform(0, 0.03))
            self.kill_tool(tool)
            tool.stderr.close()
            harness.wait_until(lambda: talk.say("hv")[1] == 0, "the tool to be dead, and a hit to tell")
            talk.end()
        self.turns(way)

    def test_a_tool_that_is_stopped_is_not_gone(self):
        talk = self.launched()
        harness.stop(talk.process.pid)
        self.assertEqual(talk.say("hhv"), [1, 1, UP])
        os.kill(talk.process.pid, signal.SIGCONT)
        talk.end()
        with open(self.path("trace"), encoding="latin-1") as file:
            hits = harness.parse_trace(file.read())
        self.assertEqual([hit.arguments for hit in hits if hit.event == "switched"], ["arg1=1", "arg1=2"])


if __name__ == "__main__":
    harness.main()
