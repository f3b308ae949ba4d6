# SPDX-License-Identifier: MIT
"""Attached processes that try to harm the tool, or other processes through the tool."""
import ctypes
import os
import random
import re
import signal
import socket
import struct
import subprocess
import time
import unittest

import harness
from harness import UNPRIVILEGED, fixture, tracer, wait_until

REFUSED = re.compile(rb"uprobe-run: .*(exchanged|refused|malformed|damaged|could not be|does not|process block|gone|ended|is about to end|in the target: )")


class AdversaryCase(harness.TestCase):
    before_exec = None

    def start_ready(self, *command):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
                                   preexec_fn=self.before_exec)
        self.addCleanup(harness.stop_group, process)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process

    def attach(self, process, definition, *options):
        return harness.run([*tracer("-o", self.path("trace"), "-d", "20ms", *options), "-p", definition, "-P",
                            str(process.pid)])

    def check_end(self, seen):
        """0, or 1 and a reason: no signal has ended the tool, nor its tracer."""
        self.assertIn(seen.returncode, (0, 1, 125), seen.stderr)
        self.assertNotIn(b"was killed by signal", seen.stderr)
        if seen.returncode != 0:
            self.assertRegex(seen.stderr, REFUSED)


class Descriptors(AdversaryCase):
    """A process that shares the target's descriptors exchanges them while the tool works there."""

    ROUNDS = 60 if harness.LONG else 24

    def attach_often(self, process):
        worked = 0
        for _ in range(self.ROUNDS):
            seen = self.attach(process, f"p:w {fixture('attached_exchanges')}:work %di:s64")
            self.check_end(seen)
            worked += seen.returncode == 0
        out, _ = process.communicate(b"x", harness.TIMEOUT)
        self.assertEqual((process.returncode, out), (0, b"fine\n"))
        return worked

    def test_no_file_is_written(self):
        content = b"0123456789" * 5000
        with open(self.path("victim"), "wb") as file:
            file.write(content)
        os.chmod(self.path("victim"), 0o600)
        self.attach_often(self.start_ready(fixture("attached_exchanges"), self.path("victim")))
        with open(self.path("victim"), "rb") as file:
            self.assertEqual(file.read(), content)

    @unittest.skipIf(os.geteuid() != 0, "only root can put a process under another root")
    def test_no_file_is_written_where_the_agent_is_passed_on(self):
        """In a mount namespace of its own the target has the agent from memory."""
        content = b"0123456789" * 5000
        with open(self.path("victim"), "wb") as file:
            file.write(content)
        self.attach_often(self.start_ready("unshare", "-m", fixture("attached_exchanges"), self.path("victim")))
        with open(self.path("victim"), "rb") as file:
            self.assertEqual(file.read(), content)

    @unittest.skipIf(os.geteuid() != 0, "only root can put a process under another root")
    def test_no_stranger_gets_a_message(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            stranger.bind(self.path("socket"))
            stranger.setblocking(False)
            self.attach_often(self.start_ready("unshare", "-m", fixture("attached_exchanges"), "/dev/null",
                                               self.path("socket")))
            with self.assertRaises(BlockingIOError):
                stranger.recv(1)


def filter_all():
    """In a child before exec: a seccomp filter that allows each call."""
    libc = ctypes.CDLL(None, use_errno=True)
    allow = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0x7fff0000))  # ret SECCOMP_RET_ALLOW
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 1, ctypes.addressof(allow)))
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, program, 0, 0) != 0:  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
        raise OSError(ctypes.get_errno(), "prctl")


@unittest.skipIf(os.geteuid() != 0, "needs root")
class FilteredDescriptors(Descriptors):
    """The same where the tool suspends the target's filters for its calls, which may be about other descriptors than it thinks."""

    ROUNDS = harness.some_of(60)
    before_exec = staticmethod(filter_all)


class Blocks(AdversaryCase):
    """The target overwrites the memory that the tool reads."""

    def check(self, how, rounds):
        for _ in range(rounds):
            process = self.start_ready(fixture("attached_lies"), how)
            for _ in range(3):
                self.check_end(self.attach(process, f"p:w {fixture('attached_lies')}:main"))
            harness.stop_group(process)

    def test_lengths(self):
        self.check("lengths", 3)

    def test_anything(self):
        self.check("random", 15)


class Killed(AdversaryCase):
    """Targets that end while the tool works on them: it says so in plain words, and ends; others go on."""

    ROUNDS = harness.some_of(200)
    END = re.compile(r"uprobe-run: (the process(es have| has) ended|process (\d+) ended|no process (\d+)|process (\d+) \(.*\): "
                     r"(has ended, its parent has not taken notice yet|is about to end))")

    COUNTS = re.compile(r"uprobe-run: (uprobes/|total: |tiers: |\S+ not probed: no thread of the process can run a function)")

    def rounds(self, other, *more):
        program, chance, said = fixture("attached_busy"), random.Random(7), set()
        for turn in range(self.ROUNDS):
            process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
            self.addCleanup(harness.stop_group, process)
            self.assertEqual(process.stdout.readline(), b"ready\n")
            words = [*tracer("-o", self.path("trace")), "-p", f"p:w {program}:several", "-p", "p /lib/x86_64-linux-gnu/libc.so.6:strn*",
                     *more, "-P", str(process.pid)]
            tool = subprocess.Popen(words, stderr=subprocess.PIPE, start_new_session=True, text=True)
            self.addCleanup(harness.stop_group, tool)
            time.sleep(chance.uniform(0, 0.4))
            os.kill(process.pid, (signal.SIGKILL, signal.SIGTERM)[turn % 2])
            if turn % 3 == 0:
                process.wait(harness.TIMEOUT)
            if other is not None:
                time.sleep(0.1)
                tool.send_signal(signal.SIGINT)
            _, errors = tool.communicate(timeout=harness.TIMEOUT)
            process.communicate(timeout=harness.TIMEOUT)
            lines = [line for line in errors.splitlines() if not self.COUNTS.match(line)]
            # ^C may come before the tool has begun anything.
            self.assertIn(tool.returncode, (0, 125, -signal.SIGINT), errors)
            for line in lines:
                self.assertRegex(line, self.END)
            if tool.returncode == 125:
                self.assertEqual(len(lines), 1, errors)
                said.update(lines)
        return said

    def test_at_any_moment(self):
        self.assertTrue(self.rounds(None))

    def test_beside_another_one(self):
        self.ROUNDS = harness.some_of(80)
        other = self.start_ready(fixture("attached_busy"))
        self.rounds(other, "-P", str(other.pid))
        out, _ = other.communicate(b"go\n", harness.TIMEOUT)
        self.assertEqual(other.returncode, 0, out)

    def start_busy(self):
        return self.start_ready(fixture("attached_busy"))

    def start_tool(self, *processes):
        words = [*tracer("-v", "-o", self.path("trace")), "-p", f"p:w {fixture('attached_busy')}:several"]
        tool = subprocess.Popen([*words, "-P", ",".join(str(process.pid) for process in processes)], stderr=subprocess.PIPE,
                                start_new_session=True)
        self.addCleanup(harness.stop_group, tool)
        return tool

    def test_the_others_are_attached_all_the_same(self):
        """One of three ends before the tool has attached to it: a zombie, whose end the tool finds when it comes to it."""
        for which in range(3):
            processes = [self.start_busy() for _ in range(3)]
            processes[which].kill()
            os.waitid(os.P_PID, processes[which].pid, os.WEXITED | os.WNOWAIT)
            tool = self.start_tool(*processes)
            said = b""
            while b"uprobe-run: attached\n" not in said:
                line = tool.stderr.readline()
                self.assertNotEqual(line, b"", said)
                said += line
            self.assertIn(b"uprobe-run: process %d ended\n" % processes[which].pid, said)
            tool.send_signal(signal.SIGINT)
            said += tool.communicate(timeout=harness.TIMEOUT)[1]
            self.assertEqual(tool.returncode, 0, said)
            for process in processes:
                out, _ = process.communicate(b"go\n", harness.TIMEOUT)
                self.assertEqual(process.returncode, -signal.SIGKILL if process == processes[which] else 0, out)

    def test_each_end_is_said_and_the_last_ends_the_tool(self):
        processes = [self.start_busy() for _ in range(3)]
        tool = self.start_tool(*processes)
        for line in tool.stderr:
            if line == b"uprobe-run: attached\n":
                break
        for process in processes[::-1][:2]:
            process.kill()
            self.assertEqual(tool.stderr.readline(), b"uprobe-run: process %d ended\n" % process.pid)
            self.assertIsNone(tool.poll())
        out, _ = processes[0].communicate(b"go\n", harness.TIMEOUT)
        self.assertEqual(processes[0].returncode, 0, out)
        said = tool.communicate(timeout=harness.TIMEOUT)[1]
        self.assertEqual(tool.returncode, 0, said)
        self.assertIn(b"the processes have ended", said)

    def test_an_id_that_no_process_has_is_refused(self):
        process, gone = self.start_busy(), self.start_busy()
        harness.stop_group(gone)
        tool = self.start_tool(process, gone)
        said = tool.communicate(timeout=harness.TIMEOUT)[1]
        self.assertEqual((tool.returncode, said.splitlines()[-1]), (125, b"uprobe-run: no process %d" % gone.pid))
        out, _ = process.communicate(b"go\n", harness.TIMEOUT)
        self.assertEqual(process.returncode, 0, out)


@unittest.skipIf(os.geteuid() != 0, "only root can attach to another user's process")
class OtherUsers(AdversaryCase):
    """Root attaches to a process of another user, who has prepared what the tool will look for."""

    def start_theirs(self):
        os.chmod(self.folder, 0o755)
        program = self.copy_of(fixture("attached_busy"))
        process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, user=UNPRIVILEGED,
                                   group=UNPRIVILEGED, extra_groups=[])
        self.addCleanup(harness.stop_group, process)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process

    def plant(self, process, make):
        path = f"/tmp/perf-{process.pid}.map"
        make(path)
        self.addCleanup(os.unlink, path)
        if not os.path.islink(path):
            os.chown(path, UNPRIVILEGED, UNPRIVILEGED)

    def written(self, text, owner=UNPRIVILEGED):
        path = self.write("map", text)
        os.chown(path, owner, owner)
        os.chmod(path, 0o600)
        return path

    def test_maps_of_code_that_are_none(self):
        line = "400000 10 name\n"
        longest = "400000 10 " + "n" * (10 << 20) + "\n" + "400000 10 \x1b[2J\rname\n"
        plants = (("fifo", os.mkfifo, 0), ("folder", None, 0), ("link to root's file", lambda path: os.symlink(self.written(line, 0), path), 0),
                  ("link", lambda path: os.symlink(self.written(line), path), 0),
                  ("root's file by a second name", lambda path: os.link(self.written(line, 0), path), 0),
                  ("long lines", lambda path: os.rename(self.written(longest), path), 1))
        for name, make, notes in plants:
            with self.subTest(name):
                process = self.start_theirs()
                if make is None:
                    os.mkdir(f"/tmp/perf-{process.pid}.map")
                    self.addCleanup(os.rmdir, f"/tmp/perf-{process.pid}.map")
                else:
                    self.plant(process, make)
                seen = self.attach(process, "p:w jit:*name*", "-d", "300ms")
                self.assertEqual(seen.returncode, 0, seen.stderr)
                self.assertIn(b"uprobes/w jit:*name*: 0 hits", seen.stderr)
                self.assertNotIn(b"\x1b", seen.stderr)
                self.assertLessEqual(seen.stderr.count(b"generated code:"), notes, seen.stderr)
                out, _ = process.communicate(b"go\n", harness.TIMEOUT)
                self.assertEqual(process.returncode, 0, out)


class Stopped(AdversaryCase):
    """A tool that SIGSTOP stops in the middle of its work holds no program for longer than a second."""

    def longest_pause(self, process, seconds):
        """While standing still a program uses no processor."""
        def used():
            with open(f"/proc/{process.pid}/stat", encoding="ascii") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])
        longest, last, since, end = 0, used(), time.monotonic(), time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.02)
            if used() != last:
                last, since = used(), time.monotonic()
            longest = max(longest, time.monotonic() - since)
        return longest

    def engine_of(self, front):
        found = []
        wait_until(lambda: found.extend(harness.descendants(front.pid)) or found or front.poll() is not None, "the engine")
        return found[0] if found else None

    def test_attaching_and_detaching(self):
        program = fixture("attached_busy")
        process = self.start_ready(program)
        chance = random.Random(5)
        for _ in range(12):
            words = [*tracer("-o", self.path("trace"), "-d", "30ms"), "-p", f"p:w {program}:several", "-p",
                     "p /lib/x86_64-linux-gnu/libc.so.6:strn*", "-P", str(process.pid)]
            front = subprocess.Popen(words, stderr=subprocess.DEVNULL, start_new_session=True)
            self.addCleanup(harness.stop_group, front)
            engine = self.engine_of(front)
            time.sleep(chance.uniform(0, 0.15))
            try:
                os.kill(engine, signal.SIGSTOP)
                self.assertLess(self.longest_pause(process, 1.6), 1.3)
                os.kill(engine, signal.SIGCONT)
            except (ProcessLookupError, TypeError):
                pass
            front.wait(harness.TIMEOUT)
        out, _ = process.communicate(b"go\n", harness.TIMEOUT)
        self.assertEqual(process.returncode, 0, out)


if __name__ == "__main__":
    harness.main()
