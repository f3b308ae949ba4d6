# SPDX-License-Identifier: MIT
"""What was found out about files is kept from run to run: later runs see the same, and nothing that others can write has a say."""
import os
import unittest

import harness

COMMANDS = "f() { for i in 1 2 3; do :; done; }; f; f"


class Cache(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.caches = self.path("caches")
        self.program = self.copy_of(harness.need("bash"))
        os.chmod(self.program, 0o755)
        self.definitions = [f"p:x {self.program}:execute_command_internal", f"r:back {self.program}:execute_command_internal"]

    def run_once(self, *options, caches=None):
        environment = {**os.environ, "XDG_CACHE_HOME": caches or self.caches}
        seen = harness.run_tool(self.definitions, [self.program, "--norc", "-c", COMMANDS], options, env=environment)
        self.assertEqual((seen.returncode, seen.stdout), (0, b""), seen.stderr)
        return seen.counts(), seen.stderr.split(b"tiers: ")[1]

    def entries(self):
        folder = os.path.join(self.caches, "uprobe-run")
        names = set(os.listdir(folder)) - {"secret"} if os.path.isdir(folder) else ()
        return {name: os.path.join(folder, name) for name in names}

    def test_later_runs_see_the_same(self):
        plain = self.run_once("--no-cache")
        self.assertEqual(self.entries(), {})
        self.assertGreater(plain[0]["x"], 5)
        self.assertEqual(self.run_once(), plain)
        kept = self.entries()
        self.assertGreaterEqual({name.split("-")[1] for name in kept}, {"flow", "calls", "sequences"})
        times = {name: os.stat(path).st_ctime_ns for name, path in kept.items()}
        self.assertEqual(self.run_once(), plain)
        self.assertEqual({name: os.stat(path).st_ctime_ns for name, path in self.entries().items()}, times, "nothing is written again")

    def test_damaged_entries_change_nothing(self):
        plain = self.run_once()
        for change in (lambda data: data[:-1], lambda data: data[:len(data) // 2] + b"\1" + data[len(data) // 2 + 1:], lambda data: b""):
            for path in self.entries().values():
                with open(path, "rb") as file:
                    data = file.read()
                with open(path, "wb") as file:
                    file.write(change(data))
            self.assertEqual(self.run_once(), plain)

    def test_another_file_at_the_path(self):
        self.run_once()
        before = set(self.entries())
        with open(self.program, "ab") as file:
            file.write(b"more")
        self.run_once()
        self.assertGreater(len(set(self.entries()) - before), 0)

    def test_what_others_can_write_is_not_kept(self):
        os.chmod(self.program, 0o775)
        self.run_once()
        flows = [name for name in self.entries() if name.endswith("-flow")]
        self.assertEqual(flows, [], "that of the program is the only one that is needed")

    def test_what_is_no_folder_of_the_user(self):
        plain = self.run_once("--no-cache")
        os.makedirs(os.path.join(self.caches, "uprobe-run"))
        os.chmod(os.path.join(self.caches, "uprobe-run"), 0o777)
        self.assertEqual(self.run_once(), plain)
        self.assertEqual(self.entries(), {})
        self.assertEqual(self.run_once(caches="/dev/null"), plain)
        self.assertEqual(self.run_once(caches="relative"), plain)

    @unittest.skipIf(os.geteuid() != 0, "another user's folder takes root to make")
    def test_a_folder_that_another_user_has_prepared(self):
        plain = self.run_once()
        folder = os.path.join(self.caches, "uprobe-run")
        for path in [folder, *self.entries().values()]:
            os.chown(path, 65534, 65534)
        before = {name: os.stat(path).st_mtime_ns for name, path in self.entries().items()}
        self.assertEqual(self.run_once(), plain)
        self.assertEqual({name: os.stat(path).st_mtime_ns for name, path in self.entries().items()}, before)


if __name__ == "__main__":
    harness.main()
