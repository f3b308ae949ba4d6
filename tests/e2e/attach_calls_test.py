# SPDX-License-Identifier: MIT
"""Threads that are in a system call or end when a tool attaches or follows: the call's effects, its duration, and the threads
and processes that it starts."""
import os
import select
import signal
import time

import harness
from attach_test import AttachCase
from harness import fixture
from process_state import footprint


class CutCalls(AttachCase):
    """A thread finishes the call that it has begun, and in its time, however often a tool attaches during the call."""

    def check(self, program, *words):
        process = self.start_ready(program, *words)
        time.sleep(0.1)
        before = None
        for _ in range(60):
            self.attach_well(process.pid, [f"p:w {program}:work %di:s64"], duration="20ms")
            self.assertEqual(footprint(process.pid), before or footprint(process.pid))
            before = footprint(process.pid)
            if select.select([process.stdout], [], [], 0)[0]:
                break
        self.assertEqual(process.stdout.readline(), b"waited\n")
        self.assertEqual(self.end_well(process), b"fine\n")

    def test_glibc(self):
        self.check(fixture("attached_cut_calls"))

    def test_under_a_filter_that_kills_restarts(self):
        """restart_syscall, by which the kernel goes on with sleeps that a stop has cut short."""
        if os.geteuid() != 0:
            self.skipTest("only root reads other programs' filters")
        self.check(fixture("attached_cut_calls"), "forbid restarts")

    def test_static(self):
        self.check(fixture("attached_cut_calls_static"))

    def test_musl(self):
        self.check(fixture("attached_cut_calls_musl_static"))


class ExecOfAThread(AttachCase):
    """Calls of a thread that is not the first one."""

    def test_all_of_them_are_followed(self):
        program = fixture("attached_thread_execs")
        for how in "tz":
            seen = harness.run_tool([f"p:w {program}:work %di:s64"], [program, how, "20"])
            self.assertEqual((seen.returncode, seen.stdout), (5, b"end\n"), seen.stderr)
            self.assertEqual(sum(hit.arguments == "arg1=1" for hit in seen.hits), 21, seen.stderr)

    def test_at_any_moment(self):
        """The tool, which holds the other threads, does not wait for one that waits for their end."""
        program = fixture("attached_thread_execs")
        process = self.start(program, "t", "1000000")
        for _ in range(40):
            seen = self.attach(process.pid, [f"p:w {program}:work %di:s64"], duration="1ms")
            self.assertIn(seen.returncode, (0, 125), seen.stderr)
            self.assertNotIn(b"has ended", seen.stderr)
            self.assertIsNone(process.poll())


class FirstThread(AttachCase):
    """After the first thread has ended /proc/PID shows no memory any more; the other threads' folders do."""

    def check(self, program):
        program = fixture(program)
        process = self.start_ready(program)
        definition = f"p:w {program}:work %di:s64"
        session = self.attach_in_background(process.pid, definition)
        process.stdin.write(b"e")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), b"alone\n")
        session.send_signal(signal.SIGINT)
        said = session.communicate(timeout=harness.TIMEOUT)[1]
        self.assertEqual(session.returncode, 0)
        self.assertIn(b": 1,000 hits\n", said)
        again = self.attach(process.pid, [definition])
        self.assertEqual(again.returncode, 125)
        self.assertIn(b"has lost its first thread", again.stderr)
        self.assertEqual(self.end_well(process, b"g"), b"0 mistakes\n")

    def test_glibc(self):
        self.check("attached_first_ends")

    def test_static(self):
        self.check("attached_first_ends_static")

    def test_musl(self):
        self.check("attached_first_ends_musl_static")


if __name__ == "__main__":
    harness.main()
