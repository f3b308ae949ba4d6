# SPDX-License-Identifier: MIT
"""All processes of the tool are killed at once, at moments that are spread evenly over what it does to attach to a program and to give
it back, while the program begins threads all the time. The program goes on, and the next tool attaches to it. So does a program that
the tool has started, where the tool alone is killed.
"""
import os
import signal
import subprocess

import harness
from moments_test import Moments, kill, left_of

POINTS = 200 if harness.LONG else 12  # of each phase
TOOL, EVERYONE = 0, 2  # see moments.c


class Beginnings(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.cell = self.copy_of(harness.fixture("cell"))
        self.moments = Moments(self.path("moments"))
        self.trace = self.path("trace")
        self.begin()

    def begin(self):
        self.program = subprocess.Popen([self.cell, "beginnings"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        start_new_session=True)
        self.addCleanup(harness.stop_group, self.program)
        self.assertEqual(self.program.stdout.readline(), b"ready\n")

    def answers(self):
        """When each of its threads has begun others."""
        try:
            os.write(self.program.stdin.fileno(), b"\n")
        except BrokenPipeError:
            return False
        return self.program.stdout.readline() == b"goes on\n"

    def goes_on(self):
        return self.answers() and self.program.poll() is None

    def start_tool(self):
        tool = subprocess.Popen([harness.tool(), "-v", "-o", self.trace, "-p", f"p:numbers {self.cell}:take_number",
                                 "-P", str(self.program.pid)], stderr=subprocess.PIPE, start_new_session=True,
                                env=self.moments.environment())
        self.addCleanup(harness.stop_group, tool)
        return tool

    def calls(self):
        return self.moments.get(Moments.CALLS)

    def play(self, phase, distance):
        """How many calls the phase had."""
        self.moments.set(Moments.FIRED, 0)
        before = self.calls()
        if phase == "attach":
            self.moments.arm(distance, signal.SIGKILL, EVERYONE)
        tool = self.start_tool()
        while tool.stderr.readline() not in (b"uprobe-run: attached\n", b""):
            pass
        if phase == "detach":
            before = self.calls()
            self.moments.arm(distance, signal.SIGKILL, EVERYONE)
        counted = self.calls() - before
        kill(tool.pid, signal.SIGINT)
        tool.stderr.read()
        tool.wait()
        harness.wait_until(lambda: left_of(self.trace) == [], "the end of all processes of the tool")
        self.moments.set(Moments.WHEN, 0)
        return counted if phase == "attach" else self.calls() - before

    def check(self, phase):
        whole = self.play(phase, 1_000_000)
        wrong = []
        for i in range(POINTS):
            point = 1 + (whole - 1) * i // (POINTS - 1)
            self.play(phase, point)
            if not self.goes_on():
                wrong.append((point, self.program.wait()))
                self.begin()
        self.assertEqual(wrong, [], f"{len(wrong)} of {POINTS}, calls: {whole}")

    def launch(self, distance):
        self.moments.set(Moments.FIRED, 0)
        before = self.calls()
        self.moments.arm(distance, signal.SIGKILL, TOOL)
        self.program = subprocess.Popen([harness.tool(), "-q", "-o", self.trace, "-p", f"p:numbers {self.cell}:take_number",
                                         "--", self.cell, "beginnings"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        start_new_session=True, env=self.moments.environment())
        self.addCleanup(harness.stop_group, self.program)
        has_begun = self.program.stdout.readline() == b"ready\n"
        goes_on = not has_begun or all(self.answers() for _ in range(2))
        counted = self.calls() - before
        self.program.stdin.close()
        self.program.stdout.read()
        self.program.wait()
        self.moments.set(Moments.WHEN, 0)
        return counted, goes_on

    def test_launch(self):
        whole, _ = self.launch(1_000_000)
        points = [1 + (whole - 1) * i // (POINTS - 1) for i in range(POINTS)]
        self.assertEqual([point for point in points if not self.launch(point)[1]], [], f"calls: {whole}")

    def test_attach(self):
        self.check("attach")

    def test_give_back(self):
        self.check("detach")


if __name__ == "__main__":
    harness.main()
