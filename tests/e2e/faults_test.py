# SPDX-License-Identifier: MIT
"""Faults of probed instructions: a handler sees the same as without probes, may repair, skip or leave, and a program that
catches nothing ends the same way. tests/e2e/fixtures/faults.c has the cases.
"""
import resource

import harness


def with_core_dumps():
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def without_core_dumps():
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.RLIM_INFINITY))


def sections(text):
    """case -> its lines"""
    found = {}
    for line in text.decode().splitlines():
        if line.endswith(":") and " " not in line:
            name = line[:-1]
            found[name] = []
        else:
            found[name].append(line)
    return found


class Faults(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        harness.tool()
        cls.program = harness.fixture("faults")
        listing = harness.run([cls.program, "list"]).stdout.decode()
        cls.hits = {name: int(hits) for name, hits in (line.split("\t") for line in listing.splitlines())}

    def definition(self, name):
        return f"p:{name} {self.program}:probe_{name} %ip"

    def command_with_all(self):
        listed = self.write("list", "".join(self.definition(name) + "\n" for name in self.hits))
        return harness.tracer("-o", self.path("trace"), "-i", listed, "--", self.program, "all")

    def both(self, before_exec):
        plain = harness.run([self.program, "all"], before_exec=before_exec, cwd=self.folder)
        seen = harness.run(self.command_with_all(), before_exec=before_exec, cwd=self.folder)
        self.assertEqual(seen.returncode, plain.returncode, seen.stderr[-2000:])
        return sections(plain.stdout), sections(seen.stdout)

    def test_all_at_once(self):
        plain, seen = self.both(without_core_dumps)
        self.assertEqual(list(plain), list(self.hits))
        for name in self.hits:
            with self.subTest(case=name):
                self.assertEqual(seen[name], plain[name])
        with open(self.path("trace"), encoding="latin-1", newline="") as file:
            hits = harness.parse_trace(file.read())
        counts = {name: sum(hit.event == name for hit in hits) for name in self.hits}
        self.assertEqual(counts, self.hits)

    def test_core_flag(self):
        plain, seen = self.both(with_core_dumps)
        ends = {name: lines[-1] for name, lines in plain.items()}
        self.assertEqual({name: seen[name][-1] for name in ends}, ends)
        self.assertIn("ended with 8b", ends["fatal_read"])

    def test_each_alone(self):
        for name in self.hits:
            with self.subTest(case=name):
                plain = harness.run([self.program, name], before_exec=without_core_dumps)
                seen = harness.run_tool([self.definition(name)], [self.program, name])
                self.assertEqual(seen.stdout, plain.stdout)
                # the tool reports death by a signal as a shell does, or dies of it as well
                self.assertIn(seen.returncode, (plain.returncode, 128 - plain.returncode))
                self.assertEqual(seen.counts(), {name: self.hits[name]})

    # they must not take the room near the loader that the copies of its hooks need
    def test_large_rings(self):
        plain = harness.run([self.program, "undefined"], before_exec=without_core_dumps)
        seen = harness.run_tool([self.definition("undefined")], [self.program, "undefined"], ["-b", "512M"])
        self.assertEqual((seen.returncode, seen.stdout), (plain.returncode, plain.stdout))


if __name__ == "__main__":
    harness.main()
