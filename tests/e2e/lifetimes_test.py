"""Children that outlive the program, sessions that end early, and programs in the background."""
import signal
import subprocess
import sys
import time

import harness
from harness import need, tracer

# Goes on for a moment when its parent has ended, and then starts another program.
OUTLIVED = "(sleep 1; /bin/echo late) >&2 & exit 3"


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
        self.assertRegex(seen.stderr, rb"uprobe-run: (1 traced process goes|\d traced processes go) on untraced")
        self.assertNotIn("echo", self.names())

    def test_no_survivors_are_told_of(self):
        seen = harness.run([*self.words, "--", "sh", "-c", "/bin/echo x; exit 3"])
        self.assertEqual((seen.returncode, seen.stdout), (3, b"x\n"))
        self.assertNotIn(b"untraced", seen.stderr)


class EarlyEnd(harness.TestCase):
    """-n and -d end the session while children call execve: no child waits for an answer that does not come."""

    def test_nobody_waits(self):
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


if __name__ == "__main__":
    harness.main()
