# SPDX-License-Identifier: MIT
"""The Python module: launch, attach, events, counts, waiting, live changes."""
import os
import subprocess
import sys
import time

import harness


class Module(harness.TestCase):
    def setUp(self):
        super().setUp()
        sys.path.insert(0, os.path.join(harness.Options.source, "library", "python"))
        import uprobe  # pylint: disable=import-outside-toplevel
        self.uprobe = uprobe
        self.program = self.copy_of(harness.fixture("callers"))
        os.environ["UPROBE_RUN"] = harness.tool()

    def launch(self, probes, *words, **more):
        return self.uprobe.launch([self.program, *words], [f"{self.program}:{probe}" for probe in probes],
                                  stdout=subprocess.PIPE, **more)

    def test_events_and_counts(self):
        with self.launch(["outer n=%di:s64", "inner%return $latency"], "nest", "3") as session:
            outer = [event for event in session if event.name == "outer"]
        self.assertEqual([event["n"] for event in outer], [0, 1, 2])
        self.assertEqual((session.counts["outer"], session.counts["inner"], session.returncode), (3, 6, 0))
        self.assertEqual(session.stdout.read(), b"done\n")
        session.stdout.close()
        self.assertEqual((outer[0].group, outer[0].comm), ("uprobes", "callers"))
        self.assertEqual(outer[0].tid, outer[0].pid)
        self.assertLess(outer[0].time, outer[1].time)

    def test_waiting_keeps_the_others(self):
        with self.launch(["outer n=%di:s64", "inner"], "nest", "5") as session:
            self.assertEqual([event["n"] for event in session.wait_for("outer", 2)], [0, 1])
            self.assertEqual(session.wait_for("inner", 1)[0].name, "inner")
            with self.assertRaisesRegex(self.uprobe.Error, "has ended after 3 of 99 'outer'"):
                session.wait_for("outer", 99, timeout=harness.TIMEOUT)
        session.stdout.close()

    def test_a_tool_that_is_killed_ends_the_events(self):
        with self.uprobe.attach(self.attached().pid, [f"{self.program}:spins ns=%di"]) as session:
            session.wait_for("spins", 1, harness.TIMEOUT)
            session._process.kill()
            self.assertGreaterEqual(sum(event.name == "spins" for event in session), 0)

    def attached(self):
        process = subprocess.Popen([self.program, "spin", "1000000"], stdout=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_a_running_process(self):
        process = self.attached()
        with self.uprobe.attach(process.pid, [f"{self.program}:spins ns=%di"]) as session:
            self.assertTrue(all(event["ns"] for event in session.wait_for("spins", 3, harness.TIMEOUT)))
            session.define(f"p:again {self.program}:spins")
            session.wait_for("again", 1, harness.TIMEOUT)
            session.remove("again")
            with self.assertRaisesRegex(self.uprobe.Error, "never_there"):
                session.define(f"{self.program}:never_there")
        self.assertEqual(session.returncode, 0)
        self.assertIsNone(process.poll())

    def test_nothing_comes(self):
        process = self.attached()
        with self.uprobe.attach(process.pid, [f"{self.program}:outer"]) as session:
            with self.assertRaisesRegex(TimeoutError, "0 of 1 'outer'"):
                session.wait_for("outer", 1, timeout=0.2)

    def test_refusals_are_the_tools_words(self):
        with self.assertRaisesRegex(self.uprobe.Error, "never_there"):
            self.uprobe.attach(self.attached().pid, [f"{self.program}:never_there"]).finish()
        with self.assertRaisesRegex(self.uprobe.Error, "UPROBE_RUN"):
            self.uprobe.launch(["true"], ["malloc"], tool="/nowhere/uprobe-run")

    def test_an_exception_in_the_block_ends_the_program(self):
        began = time.monotonic()
        with self.assertRaises(KeyError):
            with self.launch(["spins"], "spin", "100000000") as session:
                session.wait_for("spins", 1, harness.TIMEOUT)
                raise KeyError
        session.stdout.close()
        self.assertIsNotNone(session.returncode)
        self.assertLess(time.monotonic() - began, harness.TIMEOUT)


if __name__ == "__main__":
    harness.main()
