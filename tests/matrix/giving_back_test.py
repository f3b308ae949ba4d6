# SPDX-License-Identifier: MIT
"""All processes of the tool are killed at once, after one of the writes by which text comes into a program or goes out of it. The
program begins threads at the same time: a thread that then blocked SIGTRAP where the agent no longer sees it, and came to a breakpoint that
is still there, would die. moments.c, preloaded into the tool, counts the writes.
"""
import os
import signal
import time

import harness
from moments_test import WAIT, Moments, Run

KILLS = 60 if harness.LONG else 12  # of each phase
ALL = 2  # see moments.c
BEGUN, ENDED = b"begun\n", b"threads ended\n"


class Killed(Run):
    def arm(self, distance):
        if distance:
            self.moments.arm(distance, signal.SIGKILL, ALL)
        else:
            self.moments.set(Moments.WHOM, ALL)
        return self.moments.get(Moments.CALLS)

    def await_tool(self, tool):
        out, err = tool.communicate(timeout=WAIT)
        return out, err


class Launched(Killed):
    def play(self, distance):
        self.arm(distance)
        tool = self.start_tool("-q", "--", self.cell, "100")
        out, err = self.await_tool(tool)  # to the end of the program, which has the same output
        if not self.moments.has_come() or out != b"":
            self.test.assertEqual(out, BEGUN + ENDED, err)
        return self.moments.get(Moments.CALLS)


class Attached(Killed):
    def __init__(self, test, name, phase):
        super().__init__(test, name)
        self.phase = phase
        self.program = self.start(self.cell, "lines")
        test.assertEqual(self.program.stdout.readline(), BEGUN)

    def play(self, distance):
        before = self.arm(distance if self.phase == "attach" else 0)
        tool = self.start_tool("-v", "-P", str(self.program.pid))
        for line in tool.stderr:  # the end where it is killed before
            if line == b"uprobe-run: attached\n":
                break
        if self.phase == "detach":
            before = self.arm(distance)
        tool.send_signal(signal.SIGINT)
        _, err = self.await_tool(tool)
        time.sleep(0.2)  # hundreds of threads begin
        self.test.assertIsNone(self.program.poll(), err)
        out, _ = self.program.communicate(b"\n", timeout=WAIT)
        self.test.assertEqual((self.program.returncode, out), (7, ENDED), err)
        return self.moments.get(Moments.CALLS) - before


class GivingBack(harness.TestCase):
    program = "churn"

    def setUp(self):
        super().setUp()
        self.cell = self.copy_of(harness.fixture(self.program))

    def play(self, phase, distance):
        name = f"{phase}.{distance}"
        run = Launched(self, name) if phase == "launch" else Attached(self, name, phase)
        try:
            return run.play(distance)
        finally:
            run.end()

    def check(self, phase):
        writes = self.play(phase, 0)
        self.assertGreater(writes, 0)
        wrong = []
        for turn in range(KILLS):
            distance = 1 + turn * writes // KILLS
            try:
                self.play(phase, distance)
            except AssertionError as error:
                wrong.append(f"killed after write {distance} of {writes}: {error}")
        self.assertEqual(wrong, [], f"{len(wrong)} of {KILLS}")

    def test_launching(self):
        self.check("launch")

    def test_attaching(self):
        self.check("attach")

    def test_giving_back(self):
        self.check("detach")


class GivingBackMusl(GivingBack):
    program = "churn_musl"


if __name__ == "__main__":
    harness.main()
