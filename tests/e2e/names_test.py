# SPDX-License-Identifier: MIT
"""The task column: threads and processes that end before the tool can read /proc. Each hit has the name of its task."""
import os
import re
import subprocess
import time

import harness
import oracle
from elf_reader import Elf

UNKNOWN = "<...>"


def shown_and_true(hits):
    """For each hit the task column, and the expected one."""
    return [(hit.task, re.search(r'name="(.*)"', hit.rest)[1]) for hit in hits]


class Names(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.program = self.copy_of(harness.fixture("names"))
        self.definition = f"p:n/e {self.program}:hit name=+0(%di):string"

    def run_tool(self, *words):
        done = harness.run([*harness.tracer("-o", self.path("trace"), "-b", "4M"), "-p", self.definition, "--", self.program,
                            *words])
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.read_hits()

    def read_hits(self):
        with open(self.path("trace"), encoding="latin-1") as file:
            return shown_and_true(harness.parse_trace(file.read()))

    def check(self, pairs, count):
        self.assertEqual(len(pairs), count)
        wrong = [(shown, true) for shown, true in pairs if shown != true]
        self.assertEqual(wrong, [])

    def check_threads(self, pairs, rounds):
        """The name that another thread writes after a traced open may be unknown."""
        self.assertEqual(len(pairs), 3 * rounds)
        wrong = [(shown, true) for shown, true in pairs
                 if shown != true and not (true.startswith("other") and shown == UNKNOWN)]
        self.assertEqual(wrong, [])


class Short(Names):
    def test_threads(self):
        self.check_threads(self.run_tool("threads", "300"), 300)

    def test_forks(self):
        self.check(self.run_tool("forks", "100"), 100)

    def test_execs(self):
        """The child of a fork has its parent's name until it executes the other program."""
        os.symlink(self.program, self.path("leaf"))
        self.check(self.run_tool("execs", "20", self.path("leaf")), 40)

    def test_as_the_kernel(self):
        oracle.require()
        place = f"{self.program}:{Elf(self.program).offset_of('hit'):#x}"
        seen = oracle.run_kernel([f"p:e {place} name=+0(%di):string"], [self.program, "threads", "20"])
        kernel = [pair for pair in shown_and_true(seen.hits) if pair[0] != UNKNOWN]
        self.assertGreater(len(kernel), 10)
        self.assertEqual([pair for pair in kernel if pair[0] != pair[1]], [])
        self.check_threads(self.run_tool("threads", "20"), 20)


class Otherwise(Names):
    def test_preloaded(self):
        env = {**os.environ, **harness.preloaded(UPROBE_PROBES=self.definition, UPROBE_OUTPUT=self.path("trace"))}
        done = harness.run([self.program, "threads", "100"], env=env)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.check_threads(self.read_hits(), 100)

    def test_names_are_not_hits(self):
        done = harness.run([*harness.tracer("-o", self.path("trace"), "-n", "5"), "-p", self.definition, "--", self.program,
                            "threads", "50"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.read_hits()), 5)
        self.assertNotIn(b"lost", done.stderr)

    def test_tracing_ends_while_threads_begin(self):
        """The agent's internal points go all at once: a new thread's creator blocks all signals, and would die of one that stays."""
        for end in ("-n5", "-n50", "-d20ms", "-d40ms") * 8:
            done = harness.run([*harness.tracer("-o", self.path("trace"), "-q", end), "-p", self.definition, "--",
                                self.program, "threads", "50"])
            self.assertEqual((done.returncode, done.stderr), (0, b""), end)


class Skipped(Names):
    """--skip-refused: one bad definition does not end the command."""
    def setUp(self):
        super().setUp()
        self.bad = f"p:bad {self.program}:no_such_function"
        self.odd = f"p:odd {self.program}:hit %nothing"

    def test_launched(self):
        self.write("probes", f"# three\n{self.bad}\n{self.definition}\n{self.odd}\n")
        command = [*harness.tracer("-o", self.path("trace")), "-i", self.path("probes")]
        done = harness.run([*command, "--", self.program, "forks", "3"])
        self.assertEqual((done.returncode, os.path.exists(self.path("trace"))), (125, False))
        done = harness.run([*command, "--skip-refused", "--", self.program, "forks", "3"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.read_hits()), 3)
        lines = done.stderr.decode().splitlines()
        self.assertIn(f"uprobe-run: skipped {self.path('probes')}:2: '{self.bad}': no function 'no_such_function' in {self.program}",
                      lines)
        self.assertEqual(len([line for line in lines if "skipped" in line]), 3)
        self.assertIn("uprobe-run: 2 of 3 definitions skipped", lines)

    def test_preloaded(self):
        probes = "\n".join([self.bad, self.definition])
        settings = harness.preloaded(UPROBE_PROBES=probes, UPROBE_OUTPUT=self.path("trace"), UPROBE_SKIP_REFUSED="1")
        done = harness.run([self.program, "forks", "3"], env={**os.environ, **settings})
        self.assertEqual(done.returncode, 0)
        self.assertEqual(len(self.read_hits()), 3)
        self.assertIn(b"1 of 2 definitions skipped", done.stderr)

    def test_in_a_session_that_runs(self):
        name = f"names-{os.getpid()}"
        target = subprocess.Popen([*harness.tracer("-o", self.path("trace"), "--session", name), "-p", self.definition, "--",
                                   "sleep", "60"], stderr=subprocess.PIPE)
        try:
            control = [harness.tool(), "--control", name, "-p", self.bad, "-p", f"p:n/late {self.program}:main"]
            deadline = time.monotonic() + 20
            while True:
                done = harness.run([*control, "--skip-refused"])
                if done.returncode == 0 or time.monotonic() > deadline:
                    break
                time.sleep(0.2)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(b"skipped -p: 'p:bad", done.stderr)
            self.assertIn(b"1 definition skipped", done.stderr)
            listed = harness.run([harness.tool(), "--control", name, "--list"])
            self.assertIn(b"n/late", listed.stdout)
        finally:
            target.terminate()
            target.communicate()


harness.main()
