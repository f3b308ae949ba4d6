# SPDX-License-Identifier: MIT
"""Programs in a frozen cgroup: no call that the tool makes in them returns, and in the freezer of version 1 none of their threads
stops. The tool says so and leaves them; when they go on they do as if it had not been there."""
import os
import signal
import subprocess
import unittest

import harness
from attach_test import AttachCase
from harness import fixture, wait_until
from process_state import checksum_of_text, read, signals_of

FREEZERS = {"v1": ("/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"),
            "v2": ("/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"),
            "v2 alone": ("/sys/fs/cgroup", "cgroup.freeze", "1", "0")}


class Freezer:
    def __init__(self, test, root, file, on, off):
        self.folder = os.path.join(root, f"uprobe_test_{os.getpid()}")
        self.file, self.on, self.off = os.path.join(self.folder, file), on, off
        os.mkdir(self.folder)
        test.addCleanup(os.rmdir, self.folder)

    def take(self, test, process):
        write(os.path.join(self.folder, "cgroup.procs"), process.pid)
        test.addCleanup(process.wait)
        test.addCleanup(process.kill)
        test.addCleanup(self.thaw)

    def freeze(self):
        write(self.file, self.on)
        if self.on == "FROZEN":
            wait_until(lambda: read(self.file) == "FROZEN\n", "the freezer is done")
        else:
            wait_until(lambda: "frozen 1" in read(os.path.join(self.folder, "cgroup.events")), "the freezer is done")

    def thaw(self):
        write(self.file, self.off)


def write(path, value):
    with open(path, "w", encoding="ascii") as file:
        file.write(str(value))


@unittest.skipIf(os.geteuid() != 0, "needs root")
class Frozen(AttachCase):
    def freezers(self):
        """Of this machine; a skip where there is none."""
        found = []
        for name, (root, *words) in FREEZERS.items():
            try:
                freezer = Freezer(self, root, *words)
            except OSError:
                continue
            if os.path.exists(freezer.file):
                found.append((name, freezer))
        return found or self.skipTest("there is no freezer here")

    def for_each(self, check):
        for name, freezer in self.freezers():
            with self.subTest(freezer=name):
                check(freezer)

    def start_rounds(self, freezer):
        self.program = self.copy_of(fixture("live"))
        process = self.start_ready(self.program, "rounds")
        freezer.take(self, process)
        return process

    def round(self, process):
        process.stdin.write(b"\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), b"done\n")

    def test_attaching_is_refused(self):
        def check(freezer):
            process = self.start_rounds(freezer)
            text, before = checksum_of_text(process.pid), signals_of(process.pid)
            freezer.freeze()
            seen = self.attach(process.pid, [f"p:f {self.program}:f"])
            self.assertEqual(seen.returncode, 125)
            self.assertRegex(seen.stderr, rb"^uprobe-run: process \d+: (a system call in it does not return|thread \d+ does not stop)")
            self.assertEqual(signals_of(process.pid), before)
            freezer.thaw()
            self.round(process)
            self.assertEqual(checksum_of_text(process.pid), text)
            self.attach_well(process.pid, [f"p:f {self.program}:f"])
            self.round(process)
            self.assertEqual((checksum_of_text(process.pid), signals_of(process.pid)), (text, before))
            self.end_well(process, b"")

        self.for_each(check)

    def test_another_one_is_found_all_the_same(self):
        """A session that looks for programs by name leaves out the frozen one, and holds it no longer when it goes on."""
        def check(freezer):
            frozen = self.start_rounds(freezer)
            other = self.start_ready(self.program, "rounds")
            freezer.freeze()
            words = harness.tracer("-o", self.path("trace"), "-v", "-p", f"p:f {self.program}:f", f"--object={self.program}")
            session = subprocess.Popen([*words, "--wait"], stderr=subprocess.PIPE, start_new_session=True)
            self.addCleanup(harness.stop_group, session)
            lines = [session.stderr.readline()]
            while sum(b"attached to" in line for line in lines) < 3 and lines[-1]:  # the other one, and the children of both
                lines.append(session.stderr.readline())
            freezer.thaw()
            self.round(frozen)
            self.round(other)
            session.send_signal(signal.SIGINT)
            said = b"".join(lines) + session.communicate(timeout=harness.TIMEOUT)[1]
            self.assertEqual(session.returncode, 0, said)
            self.assertIn(b": 300 hits", said)
            self.round(frozen)
            self.end_well(frozen, b"")
            self.end_well(other, b"")

        self.for_each(check)

    def test_the_session_ends(self):
        def check(freezer):
            process = self.start_rounds(freezer)
            session = self.attach_in_background(process.pid, f"p:f {self.program}:f")
            self.round(process)
            freezer.freeze()
            session.send_signal(signal.SIGINT)
            said = session.communicate(timeout=harness.TIMEOUT)[1]
            self.assertEqual(session.returncode, 0, said)
            self.assertIn(b": 100 hits\n", said)
            freezer.thaw()
            for _ in range(3):
                self.round(process)
            self.attach_well(process.pid, [f"p:f {self.program}:f"])
            self.round(process)
            self.end_well(process, b"")

        self.for_each(check)


if __name__ == "__main__":
    harness.main()
