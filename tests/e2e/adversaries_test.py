# SPDX-License-Identifier: MIT
"""Traced programs that attack the memory of their session: tests/e2e/fixtures/adversary.c has the attacks. They may spoil records
and counts, but other processes are unharmed, and the tool ends.
"""
import os
import re
import subprocess
import unittest

import harness


def maps_of(pid):
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        return file.read()


def is_asleep(pid):
    with open(f"/proc/{pid}/syscall", encoding="ascii") as file:
        return file.read().startswith("230 ")  # clock_nanosleep


class Adversaries(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.tool()
        self.program = self.copy_of(harness.fixture("adversary"))
        self.definitions = [f"p:worked {self.program}:worked %di:s32", f"p:text {self.program}:worked $comm"]

    def attack(self, *words, options=()):
        return harness.run_tool(self.definitions, [self.program, *words], ["-b", "64K", *options])

    def check_worker(self, seen):
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertIn(b"worked 505000\nworker: 7\n", seen.stdout)

    def test_the_plan_cannot_be_changed(self):
        seen = self.attack("plan")
        self.assertEqual((seen.returncode, seen.stdout), (0, b"plan: 0\n"), seen.stderr)

    def test_random_words_harm_no_process(self):
        for options in ([], ["--filter=arg1 > 50"], ["--trigger=hist:keys=arg1"], ["--trigger=stacktrace"]):
            with self.subTest(options=options):
                words = harness.tracer("-b", "64K", "-o", self.path("trace"), "-p", self.definitions[0], *options)
                self.check_worker(harness.run([*words, "--", self.program, "scribble"]))

    def test_commands_in_shared_memory_are_not_obeyed(self):
        victim = self.path("made")
        self.check_worker(self.attack("commands", victim))
        self.assertFalse(os.path.exists(victim))

    def test_a_process_that_is_not_traced_cannot_be_named(self):
        with subprocess.Popen(["sleep", "1000"]) as stranger:
            try:
                harness.wait_until(lambda: is_asleep(stranger.pid), "its program")
                before = maps_of(stranger.pid)
                self.check_worker(self.attack("bells", str(stranger.pid)))
                self.assertEqual(maps_of(stranger.pid), before)
                self.assertIsNone(stranger.poll())
            finally:
                stranger.kill()

    def test_a_child_has_no_part_in_its_parents_requests(self):
        seen = self.attack("forks")
        self.assertEqual((seen.returncode, seen.stdout), (0, b"wrong: 0\n"), seen.stderr)
        self.assertEqual(seen.counts().get("worked"), 30, seen.stderr)

    @unittest.skipIf(os.geteuid() != 0, "other users need root")
    def test_processes_that_do_not_answer_keep_no_other_user_waiting(self):
        """The tool waits for each of their 93 requests. A thread that waits itself gives up after ten seconds."""
        libm = os.path.join(os.path.dirname(harness.libc_of(self.program)), "libm.so.6")
        os.chmod(self.folder, 0o755)
        os.chmod(self.program, 0o755)
        seen = harness.run_tool([self.definitions[0], f"p:root {libm}:cbrt"], [self.program, "silent", "3"], ["-b", "64K"])
        self.assertEqual((seen.returncode, seen.stdout), (0, b"wrong: 0, ended: 0\n"), seen.stderr)
        self.assertEqual(seen.counts().get("root"), 10, seen.stderr)

    def test_the_area_is_at_another_address_each_time(self):
        places = set()
        for _ in range(2):
            seen = self.attack_maps()
            places.add(re.search(rb"^([0-9a-f]+)-.*uprobe-session", seen.stdout, re.M)[1])
        self.assertEqual(len(places), 2)

    def attack_maps(self):
        cat = self.copy_of(harness.need("cat"))
        return harness.run([*harness.tracer("-o", self.path("trace"), "-p", f"p:write {harness.libc_of(cat)}:write"), "--", cat,
                            "/proc/self/maps"])


if __name__ == "__main__":
    harness.main()
