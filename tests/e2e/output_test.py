# SPDX-License-Identifier: MIT
"""The files of a trace and their contents: prepared names are refused, and no byte of a program forges a line."""
import os
import shutil
import stat
import subprocess
import tempfile
import unittest

import harness
from harness import tool, tracer

STRANGER = 48732  # a user without other processes
SOURCE = """#include <sys/prctl.h>
__attribute__((noinline)) void say(const char *text, char c) { asm volatile("" :: "r"(text), "r"(c) : "memory"); }
int main(int argc, char **argv) {
  prctl(PR_SET_NAME, "a\\nb\\033[2J", 0, 0, 0);
  for (int i = 1; i < argc; ++i) say(argv[i], argv[i][0]);
  return 0;
}
"""
FORGED = "x\n            evil-1   [000] .....  1.000000: e: (0x1) text=\"forged\"\x1b[31m\t\r\x7f\u2028\u202e"
ESCAPED = FORGED.replace("\n", "\\n").replace("\x1b", "\\x1b").replace("\t", "\\t").replace("\r", "\\r").replace("\x7f", "\\x7f") \
    .replace("\u2028", "\\xe2\\x80\\xa8").replace("\u202e", "\\xe2\\x80\\xae")


class Output(harness.TestCase):
    def setUp(self):
        super().setUp()
        tool()
        source = self.write("say.c", SOURCE)
        self.program = self.path("say")
        subprocess.run([shutil.which("gcc") or self.skipTest("no compiler"), "-O1", "-g", "-o", self.program, source], check=True)
        os.chmod(self.folder, 0o755)
        self.definition = f"p:e {self.program}:say text=+0(%di):string c=%si:char"

    def trace(self, output, *options, text="plain", **more):
        words = [*tracer(*options, *(["-o", output] if output else [])), "-p", self.definition, "--", self.program, text]
        return subprocess.run(words, capture_output=True, timeout=harness.TIMEOUT, check=False, **more)

    def preload(self, output, text="plain", **more):
        environment = {**os.environ, **harness.preloaded(UPROBE_PROBES=self.definition, UPROBE_OUTPUT=output), **more.pop("variables", {})}
        return subprocess.run([self.program, text], capture_output=True, timeout=harness.TIMEOUT, env=environment, check=False, **more)


class Lines(Output):
    def check_forged(self, text):
        hits = [line for line in text.split("\n") if " e: (0x" in line]
        self.assertEqual(len(hits), 1, text)
        self.assertEqual(len(text.splitlines()), text.count("\n"), "no other end of a line")
        self.assertIn(f'text="{ESCAPED}" c=\'x\'', hits[0])
        self.assertNotRegex(text, r"[\x00-\x09\x0b-\x1f\x7f]")
        self.assertRegex(hits[0], r"^ *(a\\nb\\x1b\[2J|say|<\.\.\.>)-\d+ ")  # a short-lived program may keep its first name

    def read(self, path):
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()

    def test_no_string_and_no_name_forges_a_line(self):
        for name, run in (("launched", self.trace), ("preloaded", self.preload)):
            path = self.path(name)
            seen = run(path, text=FORGED)
            self.assertEqual(seen.returncode, 0, seen.stderr)
            self.check_forged(self.read(path))
        self.check_forged(self.trace("-", text=FORGED).stdout.decode())

    def test_header_and_flags(self):
        """-q and --style=short omit the header, the latter the flags as well."""
        whole, short = r" +(?:say|<\.\.\.>|a\\n.*)-\d+ +\[\d+\] \.{5} +\d+\.\d{6}: e: ", r" +(?:say|<\.\.\.>|a\\n.*)-\d+ +\[\d+\] +\d+\.\d{6}: e: "
        for options, begins, line in (((), True, whole), (("-q",), False, whole), (("--style=short",), False, short)):
            with self.subTest(options=options):
                self.assertEqual(self.trace(self.path("t"), *options).returncode, 0)
                lines = self.read(self.path("t")).splitlines()
                self.assertEqual(lines[0] == "# tracer: nop", begins)
                self.assertRegex(lines[-1], "^" + line)
                self.assertEqual(len(lines), 11 if begins else 1)

    def test_raw_strings(self):
        seen = self.trace(self.path("raw"), "--raw-strings", text=FORGED)
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertIn(f'text="{FORGED}"', self.read(self.path("raw")))
        seen = self.preload(self.path("raw-too"), text=FORGED, variables={"UPROBE_RAW_STRINGS": "1"})
        self.assertIn(f'text="{FORGED}"', self.read(self.path("raw-too")))

    def test_histograms(self):
        words = [*tracer("-o", "/dev/null", "--hist-file", self.path("table")), "-p", self.definition, "--trigger=hist:keys=text", "--",
                 self.program, FORGED]
        self.assertEqual(harness.run(words).returncode, 0)
        table = self.read(self.path("table"))
        self.assertIn("x\\n            evil-1", table)
        self.assertEqual(stat.S_IMODE(os.stat(self.path("table")).st_mode), 0o600)

    def test_names_of_files(self):
        program = self.path("a\n  evil: 1 hit\x1b")
        shutil.copy(self.program, program)
        self.definition = f"p:e {program}:say"
        seen = self.trace(self.path("trace"))
        for line in seen.stderr.decode().splitlines():
            self.assertRegex(line, r"^uprobe-run: |^  ")
            self.assertNotIn("\x1b", line)


class Files(Output):
    def mode_of(self, path):
        return stat.S_IMODE(os.stat(path).st_mode)

    def test_what_is_created_is_the_users_alone(self):
        before = os.umask(0)
        try:
            self.assertEqual(self.trace(self.path("one")).returncode, 0)
            self.assertEqual(self.trace(self.path("two-%p")).returncode, 0)
            self.assertEqual(self.preload(self.path("three")).returncode, 0)
        finally:
            os.umask(before)
        for name in os.listdir(self.folder):
            if name.startswith(("one", "two", "three")):
                self.assertEqual(self.mode_of(self.path(name)), 0o600, name)

    def test_what_the_user_names_on_purpose(self):
        for name in ("/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"):
            self.assertIn(b" e: (0x", self.trace(name).stderr, name)
        self.assertEqual(self.trace("/dev/null").returncode, 0)
        os.mkdir(self.path("folder"))
        os.symlink("folder", self.path("link"))
        os.symlink("folder/inside", self.path("last"))
        for name, real in (("link/file", "folder/file"), ("last", "folder/inside"), ("./link/../folder/dots", "folder/dots")):
            self.assertEqual(self.trace(self.path(name)).returncode, 0)
            self.assertGreater(os.path.getsize(self.path(real)), 0, name)
        seen = subprocess.run(["bash", "-c", f'"$@" -o >(cat > {self.path("piped")}; echo done) -p "$DEF" -- "$PROGRAM" x | cat', "bash", *tracer()],
                              env={**os.environ, "DEF": self.definition, "PROGRAM": self.program}, capture_output=True, check=False)
        self.assertIn(b"done", seen.stdout, seen.stderr)
        with open(self.path("piped"), "rb") as file:
            self.assertIn(b" e: (0x", file.read())

    def test_the_file_of_before(self):
        with open(self.path("old"), "w", encoding="ascii") as file:
            file.write("old " * 10000)
        self.assertEqual(self.trace(self.path("old")).returncode, 0)
        with open(self.path("old"), encoding="ascii") as file:
            self.assertNotIn("old old", file.read())

    def test_no_folder(self):
        seen = self.trace(self.path("nowhere/trace"))
        self.assertEqual(seen.returncode, 125)
        self.assertIn(b"there is no folder", seen.stderr)


@unittest.skipIf(os.geteuid() != 0, "only root can change to another user")
class Planted(Output):
    """A folder that others can change: the tool does not write to files prepared there, and says so in one line."""

    def setUp(self):
        super().setUp()
        self.shared = tempfile.mkdtemp(prefix="uprobe-output.")
        self.addCleanup(shutil.rmtree, self.shared)
        os.chmod(self.shared, 0o1777)
        self.victim = self.write("victim", "what root has")

    def refused(self, name, reason):
        path = os.path.join(self.shared, name)
        for run in (self.trace, self.preload):
            seen = run(path)
            self.assertEqual(seen.returncode, 125 if run == self.trace else 0, seen.stderr)
            lines = [line for line in seen.stderr.decode().splitlines() if line.startswith("uprobe-run: ")]
            self.assertEqual(len(lines), 1, seen.stderr)
            self.assertIn(path, lines[0])
            self.assertRegex(lines[0], reason)
        with open(self.victim, encoding="ascii") as file:
            self.assertEqual(file.read(), "what root has")

    def planted(self, make, name):
        path = os.path.join(self.shared, name)
        make(path)
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)

    def test_links_pipes_and_files(self):
        self.planted(lambda path: os.symlink(self.victim, path), "link")
        self.planted(lambda path: os.symlink("/dev/null", path), "null")
        self.planted(lambda path: os.symlink(self.folder, path), "folder")
        self.planted(os.mkfifo, "pipe")
        self.planted(lambda path: self.write_at(path), "file")
        os.link(self.victim, os.path.join(self.shared, "hard"))
        self.refused("link", "link")
        self.refused("null", "link")
        self.refused("folder/trace", "another user's link")
        self.refused("pipe", "not a regular file")
        self.refused("file", "another user's")
        self.refused("hard", "another name")
        os.mkdir(os.path.join(self.shared, "theirs"))
        os.chown(os.path.join(self.shared, "theirs"), STRANGER, STRANGER)
        os.symlink(self.victim, os.path.join(self.shared, "theirs/link"))
        self.refused("theirs/link", "link")
        self.assertEqual(os.path.getsize(os.path.join(self.shared, "file")), 6)

    @staticmethod
    def write_at(path):
        with open(path, "w", encoding="ascii") as file:
            file.write("theirs")

    def test_ones_own_file_is_written(self):
        path = os.path.join(self.shared, "own")
        for _ in range(2):
            self.assertEqual(self.trace(path).returncode, 0)
        with open(path, encoding="ascii") as file:
            self.assertEqual(file.read().count(" e: (0x"), 1)
        self.assertEqual(self.preload(path).returncode, 0)
        with open(path, encoding="ascii") as file:
            self.assertEqual(file.read().count(" e: (0x"), 2)

    def test_the_final_name_is_anothers(self):
        """Of a preliminary name: the trace stays where it is, and the other user's file too."""
        words = [*tracer("-o", os.path.join(self.shared, "t-%p")), "-p", self.definition, "-P"]
        sleeper = subprocess.Popen(["sleep", "100"])
        self.addCleanup(sleeper.wait)
        self.addCleanup(sleeper.kill)
        self.planted(lambda path: self.write_at(path), f"t-{sleeper.pid}")
        seen = harness.run([*words, str(sleeper.pid), "-d", "50ms"])
        self.assertRegex(seen.stderr.decode(), r"cannot be renamed to .*another user's")
        self.assertEqual(len(os.listdir(self.shared)), 2)
        self.assertEqual(os.path.getsize(os.path.join(self.shared, f"t-{sleeper.pid}")), 6)


if __name__ == "__main__":
    harness.main()
