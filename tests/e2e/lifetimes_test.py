# SPDX-License-Identifier: MIT
"""Children that outlive the program, sessions that end early, and programs in the background."""
import os
import signal
import subprocess
import sys
import time
import unittest

import harness
from harness import need, tracer

# Goes on for a moment when its parent has ended, and then starts another program.
OUTLIVED = "(sleep 1; /bin/echo late) >&2 & exit 3"
# Its parent ends at once as well.
DAEMON = "(setsid sh -c '(sleep 1; exec /bin/echo late) >&2 & exit' &) ; exit 3"
# Belongs to another trust domain.
OTHER_USER = "setpriv --reuid=65534 --clear-groups sh -c 'sleep 1; /bin/echo late' >&2 & exit 3"
FOREVER = "sleep 60 >/dev/null 2>&1 & echo $!; exit 3"


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Lifetimes(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.libc = harness.libc_of(need("sh"))
        self.words = tracer("-o", self.path("trace"), "-p", f"p:w {self.libc}:write fd=%di:s32")

    def names(self):
        with open(self.path("trace"), encoding="latin-1") as file:
            return {hit.task for hit in harness.parse_trace(file.read())}

    def test_survivors_are_told_of(self):
        seen = harness.run([*self.words, "--", "sh", "-c", OUTLIVED])
        self.assertEqual(seen.returncode, 3, seen.stderr)
        self.assertRegex(seen.stderr, rb"uprobe-run: (1 traced process goes|\d traced processes go) on untraced; "
                                      rb"--until=last stays until the last has ended")
        self.assertNotIn("echo", self.names())

    def test_no_survivors_are_told_of(self):
        seen = harness.run([*self.words, "--", "sh", "-c", "/bin/echo x; exit 3"])
        self.assertEqual((seen.returncode, seen.stdout), (3, b"x\n"))
        self.assertNotIn(b"untraced", seen.stderr)

    def check_until_last(self, job):
        seen = harness.run([*self.words, "--until=last", "--", "sh", "-c", job])
        self.assertEqual(seen.returncode, 3, seen.stderr)
        self.assertIn("echo", self.names(), seen.stderr)
        self.assertNotIn(b"untraced", seen.stderr)
        self.assertRegex(seen.stderr, rb"the program has ended; \d traced process(es)? go(es)? on, and \^C ends the trace")

    def test_until_the_last_has_ended(self):
        for job in (OUTLIVED, DAEMON):
            with self.subTest(job=job):
                self.check_until_last(job)

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_until_another_users_process_has_ended(self):
        self.check_until_last(OTHER_USER)

    def test_until_the_first_has_ended(self):
        seen = harness.run([*self.words, "--until=first", "--", "sh", "-c", OUTLIVED])
        self.assertEqual(seen.returncode, 3, seen.stderr)
        self.assertNotIn("echo", self.names())

    def test_until_the_last_where_none_is_left(self):
        seen = harness.run([*self.words, "--until=last", "--", "sh", "-c", "/bin/echo x; exit 3"])
        self.assertEqual((seen.returncode, seen.stdout), (3, b"x\n"))
        self.assertNotIn(b"has ended", seen.stderr)

    def test_interrupted_while_others_go_on(self):
        tool = subprocess.Popen([*self.words, "--until=last", "--", "sh", "-c", FOREVER], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, start_new_session=True)
        self.addCleanup(harness.stop_group, tool)
        survivor = int(tool.stdout.readline())
        self.addCleanup(kill, survivor)
        for line in tool.stderr:
            if b"the program has ended" in line:
                break
        time.sleep(0.3)
        self.assertIsNone(tool.poll())
        tool.send_signal(signal.SIGINT)
        said = tool.communicate(timeout=harness.TIMEOUT)[1]
        self.assertEqual(tool.returncode, 3, said)
        self.assertTrue(is_alive(survivor))

    def attach(self, job):
        shell = subprocess.Popen(["sh", "-c", "read line; " + job], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(harness.stop_group, shell)
        tool = subprocess.Popen([*self.words, "-v", "--until=last", "-P", str(shell.pid)], stderr=subprocess.PIPE,
                                start_new_session=True)
        self.addCleanup(harness.stop_group, tool)
        for line in tool.stderr:
            if line == b"uprobe-run: attached\n":
                break
        shell.stdin.write(b"x\n")
        shell.stdin.flush()
        return shell, tool

    def test_attached(self):
        shell, tool = self.attach(OUTLIVED)
        self.assertEqual(shell.wait(harness.TIMEOUT), 3)
        said = tool.communicate(timeout=harness.TIMEOUT)[1]
        self.assertEqual(tool.returncode, 0, said)
        self.assertIn("echo", self.names(), said)

    def test_attached_and_interrupted(self):
        shell, tool = self.attach(FOREVER)
        survivor = int(shell.stdout.readline())
        self.addCleanup(kill, survivor)
        self.assertEqual(shell.wait(harness.TIMEOUT), 3)
        for line in tool.stderr:
            if b"the attached process has ended" in line:
                break
        tool.send_signal(signal.SIGINT)
        said = tool.communicate(timeout=harness.TIMEOUT)[1]
        self.assertEqual(tool.returncode, 0, said)
        self.assertTrue(is_alive(survivor))


class EarlyEnd(harness.TestCase):
    """-n and -d end the session while children call execve: no child waits for an answer that does not come."""

    def test_no_child_waits(self):
        job = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do /bin/true; done; echo end; exit 5"
        definition = f"p:m {harness.libc_of(need('sh'))}:malloc"
        ends = [("-n", str(number)) for number in (20, 60, 100, 140, 180, 220)]
        ends += [("-d", time) for time in ("30ms", "60ms", "90ms", "120ms", "150ms", "200ms")]
        for option, value in ends:
            with self.subTest(option=option, value=value):
                seen = harness.run_tool([definition], ["sh", "-c", job], options=(option, value))
                self.assertEqual((seen.returncode, seen.stdout), (5, b"end\n"), seen.stderr)
                self.assertNotIn(b"too busy to answer", seen.stderr)


# Says how it finds the signals, takes one of them for itself, and waits for it.
TAKES_SIGNALS = """
import signal, sys
found = [signal.getsignal(number) == signal.SIG_IGN for number in (signal.SIGINT, signal.SIGQUIT)]
signal.signal(signal.SIGQUIT, lambda number, frame: (print("taken", flush=True), sys.exit(4)))
print(found, flush=True)
while True:
    signal.pause()
"""


def ignore_signals():
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)


class Background(harness.TestCase):
    """As a shell without job control starts it: SIGINT and SIGQUIT are ignored."""

    def test_ignored_signals(self):
        words = tracer("-q", "-o", self.path("trace"), "-p", f"p:w {harness.libc_of(need('sh'))}:write")
        tool = subprocess.Popen([*words, "--", sys.executable, "-c", TAKES_SIGNALS], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, start_new_session=True, preexec_fn=ignore_signals)
        self.addCleanup(harness.stop_group, tool)
        self.assertEqual(tool.stdout.readline(), b"[True, True]\n")
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGINT):  # no wish to detach either
            tool.send_signal(number)
            time.sleep(0.05)
        tool.send_signal(signal.SIGQUIT)
        out, said = tool.communicate(timeout=harness.TIMEOUT)
        self.assertEqual((tool.returncode, out), (4, b"taken\n"), said)

    def test_every_signal_that_can_be_ignored(self):
        def ignore():
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_IGN)
        command = [need("grep"), "-E", "SigBlk|SigIgn", "/proc/self/status"]
        words = tracer("-q", "-o", self.path("trace"), "-p", f"p:w {harness.libc_of(need('sh'))}:write")
        seen = subprocess.run([*words, "--", *command], capture_output=True, preexec_fn=ignore, restore_signals=False,
                              timeout=harness.TIMEOUT)
        without = subprocess.run(command, capture_output=True, preexec_fn=ignore, restore_signals=False)
        self.assertEqual((seen.returncode, seen.stdout, seen.stderr), (0, without.stdout, b""))


if __name__ == "__main__":
    harness.main()
