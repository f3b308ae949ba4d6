# SPDX-License-Identifier: MIT
"""The kernel's uprobes put on places that are traced already, and removed again while the program runs: it lives and
computes the same, each tracer counts the hits while the place was its own, and the tool reports it.
"""
import os
import re
import subprocess
import time

import harness
import oracle
from elf_reader import Elf

FUNCTIONS = ("one_instruction", "nop_of_five", "several", "no_room")
ROUND = 100  # calls
BREAKPOINT = 0xcc
PATIENCE = 20  # seconds, for what happens within a tenth of one


class Beside(harness.TestCase):
    def setUp(self):
        super().setUp()
        oracle.require()
        source = os.path.join(harness.Options.source, "tests", "e2e", "fixtures", "foreign_breakpoints.c")
        self.program = self.path("program")
        subprocess.run([harness.need("gcc"), "-O1", "-no-pie", "-o", self.program, source], check=True)
        self.file = Elf(self.program)
        self.definitions = [f"p:{name} {self.program}:{name}" for name in FUNCTIONS]

    def start(self, tier):
        words = [harness.tool(), f"--tier={tier}", "-o", self.path("trace")]
        for definition in self.definitions:
            words += ["-p", definition]
        tool = subprocess.Popen([*words, "--", self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
        self.addCleanup(tool.kill)
        return tool

    def call(self, tool):
        """Calls each function ROUND times; returns their results."""
        tool.stdin.write("".join(f"{name} {ROUND}\n" for name in FUNCTIONS))
        tool.stdin.flush()
        return [tool.stdout.readline() for _ in FUNCTIONS]

    @staticmethod
    def child_of(tool):
        with open(f"/proc/{tool.pid}/task/{tool.pid}/children", encoding="ascii") as file:
            return int(file.read().split()[0])

    def texts(self, pid):
        with open(f"/proc/{pid}/mem", "rb") as memory:
            found = []
            for name in FUNCTIONS:
                memory.seek(self.file.symbols[name])
                found.append(memory.read(5))
        return found

    def await_texts(self, pid, wanted, first):
        """Waits until the bytes after the first are the file's, and the first is `first`."""
        end = time.monotonic() + PATIENCE
        while [text[1:] for text in self.texts(pid)] != wanted or any(text[0] != first for text in self.texts(pid)):
            self.assertLess(time.monotonic(), end, (self.texts(pid), wanted))
            time.sleep(0.01)

    def check(self, tier):
        plain = harness.run([self.program], "".join(f"{name} {ROUND}\n" for name in FUNCTIONS).encode())
        expected = plain.stdout.decode().splitlines(keepends=True)
        rest = [self.file.data[self.file.offset_of(name):][1:5] for name in FUNCTIONS]
        tool = self.start(tier)
        self.assertEqual(self.call(tool), expected)
        pid = self.child_of(tool)
        with oracle.Oracle(self.definitions, everybody=True) as kernel:
            self.await_texts(pid, rest, BREAKPOINT)
            self.assertEqual(self.call(tool), expected)
            counts = kernel.read_profile()
        self.await_texts(pid, rest, BREAKPOINT)  # the tool's again
        self.assertEqual(self.call(tool), expected)
        _, errors = tool.communicate()
        self.assertEqual(tool.returncode, plain.returncode, errors)
        self.assertEqual(counts, {name: ROUND for name in FUNCTIONS})
        hits = dict(re.findall(r"uprobes/(\S+) \S+: (\d+) hits", errors))
        self.assertEqual(hits, {name: str(2 * ROUND) for name in FUNCTIONS}, errors)
        self.assertEqual(len(re.findall(r"a foreign breakpoint stood there for a while", errors)), len(FUNCTIONS), errors)

    def test_jumps(self):
        self.check("auto")

    def test_breakpoints(self):
        self.check("int3")


if __name__ == "__main__":
    harness.main()
