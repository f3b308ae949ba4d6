# SPDX-License-Identifier: MIT
"""--top in tmux, as a user has it: by keys, in windows of many widths, and afterwards terminal and program are as they were."""
import os
import re
import subprocess

import harness
from elf_reader import Elf

COLUMNS = "calls returns total self mean p50 p90 p99 max function".split()
ORDERS = {"c": "calls", "s": "self", "m": "mean", "9": "p99", "x": "max", "t": "total"}


class Window(harness.TestCase):
    """A window of a tmux server of its own, with a shell; and a program that runs."""

    def setUp(self):
        super().setUp()
        self.program = self.copy_of(harness.fixture("callers"))
        self.process = subprocess.Popen([self.program, "spin", "1000000000"], stdout=subprocess.DEVNULL)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)
        self.command = [harness.need("tmux"), "-S", self.path("socket"), "-f", "/dev/null"]
        environment = {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", "ENV": ""}
        environment.pop("TMUX", None)
        started = harness.run([*self.command, "new-session", "-d", "-x", "100", "-y", "20", "/bin/sh"], env=environment)
        if started.returncode != 0:
            self.skipTest(f"tmux cannot start here: {started.stderr.decode().strip()}")
        self.addCleanup(harness.run, [*self.command, "kill-server"])
        self.wait_for(lambda: self.lines()[0] != "", "the shell")

    def tmux(self, *words):
        done = harness.run([*self.command, *words])
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()

    def lines(self):
        return [line.rstrip() for line in self.tmux("capture-pane", "-p").split("\n")]

    def wait_for(self, condition, what):
        try:
            harness.wait_until(condition, what)
        except AssertionError as error:
            self.fail(f"{error}: {self.lines()}")

    def type(self, text):
        self.tmux("send-keys", "-l", text)

    def enter(self, line):
        self.type(line)
        self.tmux("send-keys", "Enter")

    def start(self, *options):
        words = " ".join([*harness.tracer("--top", *options), "-P", str(self.process.pid), "-p", f"{self.program}:spins", "-p",
                          f"{self.program}:outer"])
        self.enter(f"stty -g > {self.path('before')}; echo kept; {words} 2> {self.path('said')}; stty -g > {self.path('after')}; echo over")
        self.wait_for(lambda: any(line.endswith("  spins") for line in self.lines()), "the table")

    def state(self):
        """The code of the function, and who traces the process."""
        address = Elf(self.program).offset_of("spins")
        with open(f"/proc/{self.process.pid}/maps", encoding="ascii") as file:
            ranges = [line.split() for line in file if line.rstrip().endswith(self.program)]
        for span, _, offset, *_ in ranges:
            begin, end = (int(word, 16) for word in span.split("-"))
            if int(offset, 16) <= address < int(offset, 16) + end - begin:
                with open(f"/proc/{self.process.pid}/mem", "rb") as memory:
                    memory.seek(begin + address - int(offset, 16))
                    code = memory.read(64)
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return code, re.search(r"TracerPid:\s+(\d+)", file.read())[1]

    def check_settings(self):
        texts = []
        for name in ("before", "after"):
            with open(self.path(name), encoding="ascii") as file:
                texts.append(file.read())
        self.assertEqual(*texts)

    def check_end(self):
        """The screen of before is back, the cursor is to be seen, the terminal's settings are those of before, and the table is the last
        word."""
        self.wait_for(lambda: "over" in self.lines(), "the shell")
        self.assertIn("kept", self.lines())
        self.assertEqual(self.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag}").strip(), "0 1")
        self.check_settings()
        with open(self.path("said"), encoding="ascii") as file:
            self.assertRegex(file.read(), r"(?s)^ *calls .*  spins\n1 function never called\n")
        self.assertIsNone(self.process.poll())


class Keys(Window):
    def test_each_order_and_the_end(self):
        before = self.state()
        self.start()
        self.assertNotEqual(self.state()[0], before[0])
        self.assertTrue(self.lines()[0].startswith("calls by total   ("), self.lines())
        for key, name in ORDERS.items():
            self.type(key)
            self.wait_for(lambda name=name: self.lines()[0].startswith(f"calls by {name} "), f"the order by {name}")
        self.type("?Q\x1b")
        self.type("c")
        self.wait_for(lambda: self.lines()[0].startswith("calls by calls "), "a key after others that mean nothing")
        self.type("q")
        self.check_end()
        self.assertEqual(self.state(), before)

    def test_an_interrupt_ends_it_too(self):
        before = self.state()
        self.start()
        self.tmux("send-keys", "C-c")
        self.check_end()
        self.assertEqual(self.state(), before)

    def test_a_stop_gives_the_terminal_back_until_it_goes_on(self):
        self.start()
        self.tmux("send-keys", "C-z")
        self.wait_for(lambda: self.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag}").strip() == "0 1", "the terminal")
        self.enter("echo st''opped")
        self.wait_for(lambda: "stopped" in self.lines(), "the shell")
        self.check_settings()
        self.enter("fg")
        self.wait_for(lambda: self.lines()[0].startswith("calls by total"), "the table again")
        self.type("x")
        self.wait_for(lambda: self.lines()[0].startswith("calls by max"), "a key without an end of line")
        self.type("q")
        self.wait_for(lambda: self.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag}").strip() == "0 1", "the end")
        self.assertIsNone(self.process.poll())


class Widths(Window):
    def columns(self):
        return self.lines()[2].split()

    def test_from_40_to_200_columns(self):
        """No row is longer than the window, whose last column is used; more columns of the table come as it grows."""
        self.start()
        shown = []
        for width in (40, 41, 57, 72, 73, 80, 99, 100, 132, 200):
            self.tmux("resize-window", "-x", str(width), "-y", "20")
            self.type("x")
            self.wait_for(lambda: self.lines()[0].startswith("calls by max"), "the table")
            self.type("t")
            self.wait_for(lambda width=width: self.lines()[0].startswith("calls by total") and (width < 80 or "q ends" in self.lines()[0]),
                          f"the table in {width} columns")
            lines = self.lines()
            self.assertEqual(lines[1], "", lines)
            columns = lines[2].split()
            self.assertEqual(columns, [name for name in COLUMNS if name in columns], lines)
            self.assertEqual([columns[0], columns[-1]], ["calls", "function"], lines)
            self.assertRegex(lines[3], r"^ *[\d,]+ .*  spins$", lines)
            self.assertEqual(lines[4], "1 function never called")
            self.assertFalse([line for line in lines[4:] if "spins" in line], lines)
            shown.append(len(columns))
        self.assertEqual(shown, sorted(shown))
        self.assertEqual((shown[-1], shown[0] < shown[-1]), (len(COLUMNS), True), shown)
        self.type("q")
        self.check_end()

    def test_fewer_lines_than_the_table(self):
        self.start()
        self.tmux("resize-window", "-x", "80", "-y", "4")
        self.wait_for(lambda: self.lines()[3].endswith("  spins") and self.lines()[0].startswith("calls by"), "the table's first lines")
        self.type("q")
        self.wait_for(lambda: "over" in self.lines(), "the shell")


if __name__ == "__main__":
    harness.main()
