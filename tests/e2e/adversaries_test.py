# SPDX-License-Identifier: MIT
"""Traced programs that attack the memory of their session: tests/e2e/fixtures/adversary.c has the attacks. They may spoil records
and counts, but other processes are unharmed, and the tool ends.
"""
import os
import re
import subprocess
import sys
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

    def mount_silent_server(self):
        """A file system that root and the others can open files of, whose pages never come."""
        folder = self.path("silent")
        os.mkdir(folder)
        server = subprocess.Popen([sys.executable, os.path.join(os.path.dirname(__file__), "silent_server.py"), folder],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (server.kill(), server.communicate(), subprocess.run(["umount", "-l", folder], check=False)))
        if server.stdout.readline() != b"ready\n":
            self.skipTest("no FUSE here")
        self.server = server
        os.chmod(self.folder, 0o755)
        os.chmod(self.program, 0o755)
        return os.path.join(folder, "file")

    @unittest.skipIf(os.geteuid() != 0, "other users need root")
    def test_pages_that_never_come_keep_no_other_user_waiting(self):
        """Three users have put them where the tool reads their requests."""
        file = self.mount_silent_server()
        libm = os.path.join(os.path.dirname(harness.libc_of(self.program)), "libm.so.6")
        seen = harness.run_tool([self.definitions[0], f"p:root {libm}:cbrt"], [self.program, "stuck", "3", file], ["-b", "64K"])
        self.assertEqual((seen.returncode, seen.stdout), (0, b"wrong: 0, ended: 0\n"), seen.stderr)
        self.assertEqual(seen.counts().get("root"), 10, seen.stderr)
        self.assertIn(b"(adversary): the memory of its user's processes does not answer", seen.stderr)

    @unittest.skipIf(os.geteuid() != 0, "other users need root")
    def test_an_execve_that_does_not_end_holds_no_command(self):
        file = self.mount_silent_server()
        as_other = ["setpriv", "--reuid=60000", "--regid=60000", "--clear-groups"]
        script = f"{' '.join(as_other)} sh -c 'exec {file}' >/dev/null 2>&1 & echo $!; sleep 1; /bin/echo ends"
        seen = harness.run([*harness.tracer("-o", self.path("trace"), "-p", f"p:w {harness.libc_of(self.program)}:write"), "--", "sh", "-c",
                            script])
        self.assertEqual(seen.returncode, 0, seen.stderr)
        stuck, word = seen.stdout.split()
        self.assertEqual(word, b"ends")
        self.addCleanup(os.kill, int(stuck), 9)
        seen = harness.run([*harness.tracer("-o", self.path("trace"), "-p", self.definitions[0]), "-P", stuck])
        self.assertEqual(seen.returncode, 125)
        self.assertIn(b"is in an execve that does not end", seen.stderr)

    @unittest.skipIf(os.geteuid() != 0, "other users need root")
    def test_an_execve_that_holds_its_lock_holds_no_command(self):
        """It closes a descriptor whose server does not answer. Until then no tool can open files of its process in /proc."""
        held = os.path.join(os.path.dirname(self.mount_silent_server()), "held")
        code = f"import os; os.open({held!r}, os.O_RDONLY | os.O_CLOEXEC); os.execv('/bin/sleep', ['sleep', '1000'])"
        libc = harness.libc_of(self.program)
        run = ["-o", self.path("trace"), "-p", f"p:w {libc}:write"]
        with subprocess.Popen(["setpriv", "--reuid=60000", "--regid=60000", "--clear-groups", sys.executable, "-c", code]) as holder, \
                subprocess.Popen(["sleep", "1000"]) as own:
            self.addCleanup(holder.kill)
            self.addCleanup(own.kill)
            self.assertEqual(self.server.stdout.readline(), b"held\n")
            harness.wait_until(lambda: is_asleep(own.pid), "its program")
            try:
                for words in (["-d", "0.2", "-P", str(own.pid)], ["--", "sh", "-c", "/bin/echo ends"]):
                    with self.subTest(words=words):
                        seen = harness.run([*harness.tracer(*run), *words])
                        self.assertEqual(seen.returncode, 0, seen.stderr)
                        self.assertIsNone(holder.poll())
            finally:
                own.kill()
                self.server.kill()
                self.server.wait()
                holder.kill()

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
