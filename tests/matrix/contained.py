# SPDX-License-Identifier: MIT
"""contained.c, running in a surrounding of surround.c."""
import os
import subprocess

import harness

NOBODY = 65534


def become_nobody():
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def built(name):
    return os.path.join(harness.Options.fixtures, name)


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
