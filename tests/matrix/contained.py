# SPDX-License-Identifier: MIT
"""contained.c, running in a surrounding of surround.c."""
import os
import subprocess
import unittest

import harness


def built(name):
    return os.path.join(harness.Options.fixtures, name)


@unittest.skipIf(os.geteuid() != 0, "needs root")
class SurroundedCase(harness.TestCase):
    """A test of processes in surroundings, with a folder that all users may enter."""

    def setUp(self):
        super().setUp()
        if not os.path.exists(built("surround")):
            self.skipTest("a static C library is not installed")
        os.chmod(self.folder, 0o755)


class Contained:
    """A running contained.c."""

    def __init__(self, test, words, path=None, **more):
        self.path = path or test.path("contained")
        self.process = subprocess.Popen([built("surround"), *words, "--", self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, start_new_session=True, **more)
        test.addCleanup(harness.stop_group, self.process)
        self.test = test
        said = self.process.stdout.readline()
        if said.startswith(b"surround: "):
            test.skipTest(f"no surroundings here: {said.decode().strip()}")
        test.assertEqual(said, b"ready\n")
        self.pid = self.process.pid

    def tell(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().decode().rstrip("\n")

    def end_well(self):
        out, _ = self.process.communicate(b"end\n", harness.TIMEOUT)
        self.test.assertEqual((out, self.process.returncode), (b"fine\n", 3))
