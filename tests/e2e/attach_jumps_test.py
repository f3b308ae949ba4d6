# SPDX-License-Identifier: MIT
"""Jumps in programs that are attached to."""
import unittest

import harness
from attach_test import AttachCase
from harness import fixture
from process_state import checksum_of_text, read
from program_jobs import LIBC


class Wide(AttachCase):
    def test_all_of_a_library(self):
        """No byte of the jumps stays."""
        process = self.start_ready(fixture("attached_busy"), "signals")
        text = checksum_of_text(process.pid)
        for _ in range(3):
            seen = self.attach_well(process.pid, [f"p:l/* {LIBC}:*"], "-v")
            if harness.Options.tier != "int3":
                self.assertRegex(seen.stderr, rb"tiers: [23],\d{3} jump, ")  # more where debug files have the names
            self.assertEqual(checksum_of_text(process.pid), text)
        self.end_well(process)


class Inside(AttachCase):
    """A jump over several instructions is written only if no thread stands after the first of them or can come back there unseen."""

    def check(self, how, program="attached_inside", stays_breakpoint=True):
        program = fixture(program)
        process = self.start_ready(program, how)
        definitions = [f"p:{name} {program}:{name} %di:s64" for name in ("fills", "quiet")]
        session = self.attach_in_background(process.pid, *definitions)
        self.assertEqual(self.end_well(process, b"g"), b"0 mistakes\n")
        said = session.stderr.read()
        self.assertEqual(session.wait(harness.TIMEOUT), 0)
        hits = [hit.event for hit in harness.parse_trace(read(self.path("trace")))]
        self.assertEqual(hits.count("quiet"), 3)
        self.assertEqual(hits[-6:], ["fills", "quiet"] * 3)
        if harness.Options.tier != "int3":
            self.assertIn(b"tiers: 1 jump, 1 int3" if stays_breakpoint else b"tiers: 2 jump, 0 int3", said)
            why = rb"int3: (the program may be executing it( \(thread \d+\))?|at first, a jump later)\n"
            (self.assertRegex if stays_breakpoint else self.assertNotRegex)(said, why)

    def skip_without_jumps(self):
        if harness.Options.tier == "int3":
            self.skipTest("by breakpoints only")

    def test_a_thread(self):
        self.check("stays")

    def test_a_handler(self):
        self.check("handles")

    def test_a_handler_that_has_left_its_stack(self):
        self.check("switches", stays_breakpoint=False)

    @unittest.expectedFailure
    def test_a_handler_that_never_returns(self):
        self.skip_without_jumps()
        self.check("jumps", stays_breakpoint=False)

    def test_static(self):
        self.check("stays", "attached_inside_static")
        self.check("handles", "attached_inside_static")
        self.check("switches", "attached_inside_static", stays_breakpoint=False)


if __name__ == "__main__":
    harness.main()
