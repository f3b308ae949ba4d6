# SPDX-License-Identifier: MIT
"""The trace as other programs keep it: files that are moved away and opened anew, readers of lines, readers that go away."""
import os
import re
import shutil
import signal
import socket
import subprocess

import harness

SOURCE = r"""
#include <stdio.h>
#include <unistd.h>
#define KEPT __attribute__((noinline, used))
KEPT void turn(long k) { asm volatile("" :: "r"(k) : "memory"); }
int main(int argc, char **argv) {
  const volatile unsigned char *code = (const volatile unsigned char *)turn;
  long k = 0;
  for (; access(argv[1], 0); ++k) {
    turn(k);
    usleep(200);
    if (argc > 2 && *code != 0xe9 && *code != 0xcc) {
      fprintf(stderr, "not probed any more\n");
      return 7;
    }
  }
  fprintf(stderr, "%ld turns\n", k);
}
"""


class LogFiles(harness.TestCase):
    def setUp(self):
        super().setUp()
        source = self.write("turns.c", SOURCE)
        self.program = harness.compiled([harness.need("cc"), "-O1", source], self.path("turns"))
        self.log, self.end = self.path("log"), self.path("end")
        self.definition = f"p:turn {self.program}:turn k=%di:u64"

    def start(self, words, **streams):
        process = subprocess.Popen(words, start_new_session=True, **streams)
        self.addCleanup(harness.stop_group, process)
        return process

    def numbers(self, file):
        return [int(number) for number in re.findall(r"turn: \(0x[0-9a-f]+\) k=(\d+)\n", open(file).read())]

    def has_lines(self, file):
        return os.path.exists(file) and len(self.numbers(file)) > 20

    def rotate_twice(self, tool):
        harness.wait_until(lambda: self.has_lines(self.log), "lines")
        for number in (1, 2):
            os.rename(self.log, f"{self.log}.{number}")
            os.kill(tool.pid, signal.SIGHUP)
            harness.wait_until(lambda: self.has_lines(self.log), "lines in the new file")
        self.assertEqual(os.stat(self.log).st_mode & 0o777, 0o600)
        return [f"{self.log}.1", f"{self.log}.2", self.log]

    def test_a_file_that_was_moved_away(self):
        """Not one record is lost, and the program does not get the signal."""
        tool = self.start(harness.tracer("-q", "-o", self.log, "--reopen", "-p", self.definition, "--", self.program, self.end), stderr=subprocess.PIPE)
        files = self.rotate_twice(tool)
        self.write("end", "")
        error = tool.communicate(timeout=harness.TIMEOUT)[1].decode()
        turns = int(re.fullmatch(r"(\d+) turns\n", error)[1])
        self.assertEqual(tool.returncode, 0)
        self.assertEqual([number for file in files for number in self.numbers(file)], list(range(turns)))

    def test_while_attached(self):
        program = self.start([self.program, self.end], stderr=subprocess.PIPE)
        tool = self.start(harness.tracer("-q", "-o", self.log, "--reopen", "-p", self.definition, "-P", str(program.pid)), stderr=subprocess.PIPE)
        files = self.rotate_twice(tool)
        tool.send_signal(signal.SIGINT)
        self.assertEqual((tool.wait(harness.TIMEOUT), tool.stderr.read()), (0, b""))
        self.write("end", "")
        self.assertEqual(program.wait(harness.TIMEOUT), 0)
        numbers = [number for file in files for number in self.numbers(file)]
        self.assertEqual(numbers, list(range(numbers[0], numbers[0] + len(numbers))))

    def test_a_file_that_cannot_be_opened_anew(self):
        """The trace goes on where it was, and one line says why."""
        tool = self.start(harness.tracer("-q", "-o", self.log, "--reopen", "-p", self.definition, "--", self.program, self.end), stderr=subprocess.PIPE)
        harness.wait_until(lambda: self.has_lines(self.log), "lines")
        os.rename(self.log, self.path("moved"))
        os.mkdir(self.log)
        os.kill(tool.pid, signal.SIGHUP)
        before = len(self.numbers(self.path("moved")))
        harness.wait_until(lambda: len(self.numbers(self.path("moved"))) > before + 200, "further lines")
        self.write("end", "")
        error = tool.communicate(timeout=harness.TIMEOUT)[1].decode()
        said, turns = re.fullmatch(r"uprobe-run: (.*)\n(\d+) turns\n", error).groups()
        self.assertRegex(said, r"log: cannot be opened anew \(.*\): the trace goes on in the file that is open")
        self.assertEqual(self.numbers(self.path("moved")), list(range(int(turns))))

    def test_each_line_by_itself(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(ours.close)
        ours.settimeout(harness.TIMEOUT)
        tool = self.start(harness.tracer("-q", "-o", "-", "--line-buffered", "-p", self.definition, "--", self.program, self.end),
                          stdout=theirs, stderr=subprocess.DEVNULL)
        theirs.close()
        for number in range(300):
            self.assertRegex(ours.recv(65536).decode(), rf"\A\S.*turn: \(0x[0-9a-f]+\) k={number}\n\Z|\A +\S.*k={number}\n\Z")
        self.write("end", "")
        while ours.recv(65536):
            pass
        self.assertEqual(tool.wait(harness.TIMEOUT), 0)

    def test_a_reader_that_goes_away_ends_the_tracing_alone(self):
        for options in ([], ["--format=json"]):
            words = harness.tracer("-q", "-o", "-", *options, "-p", self.definition, "--", self.program, self.end, "until it is not probed")
            tool = self.start(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            tool.stdout.readline()
            tool.stdout.close()
            self.assertEqual(tool.wait(harness.TIMEOUT), 7)
            self.assertEqual(tool.stderr.read(), b"not probed any more\n")

    def counts(self, file):
        """By series and event; each line is one that Prometheus reads."""
        found = {}
        for line in open(file).read().splitlines():
            if line.startswith("# "):
                self.assertRegex(line, r"^# (HELP uprobe_[a-z_]+ \S.*|TYPE uprobe_[a-z_]+ (counter|gauge))$")
                continue
            name, _, event, count = re.fullmatch(r'(uprobe_[a-z_]+)\{session="([^"\\]+)"(?:,event="([^"\\]+)")?\} (\d+)', line).groups()
            self.assertNotIn((name, event), found)
            found[name, event] = int(count)
        return found

    def test_counts_for_prometheus(self):
        """They grow while the program runs, and at the end are the counts of the summary."""
        file = self.path("counts.prom")
        tool = self.start(harness.tracer("-o", self.log, f"--prometheus={file}", "--interval=20ms", "-p", self.definition, "--",
                                         self.program, self.end), stderr=subprocess.PIPE)
        hits = ("uprobe_hits_total", "uprobes/turn")
        harness.wait_until(lambda: os.path.exists(file) and self.counts(file).get(hits, 0) > 20, "counts")
        seen = self.counts(file)
        self.assertEqual((seen["uprobe_tracing", None], seen["uprobe_lost_hits_total", "uprobes/turn"]), (1, 0))
        harness.wait_until(lambda: self.counts(file)[hits] > seen[hits], "further counts")
        self.write("end", "")
        error = tool.communicate(timeout=harness.TIMEOUT)[1].decode()
        turns = int(re.search(r"(\d+) turns\n", error)[1])
        self.assertEqual((self.counts(file)[hits], self.counts(file)["uprobe_tracing", None]), (turns, 0))
        self.assertEqual(os.stat(file).st_mode & 0o777, 0o644)
        self.assertEqual([name for name in os.listdir(os.path.dirname(file)) if "counts" in name], ["counts.prom"])
        promtool = shutil.which("promtool")
        if promtool:
            checked = harness.run([promtool, "check", "metrics"], stdin=open(file, "rb").read())
            self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, b"", b""))

    def test_counts_that_cannot_be_written(self):
        """Refused before the program runs."""
        for file, answer in (("/nowhere/counts.prom", "cannot be written|No such file"), ("unix:counts", "the counts go to a file")):
            seen = harness.run([harness.tool(), "-q", "-o", self.log, f"--prometheus={file}", "-p", self.definition, self.program, self.end])
            self.assertEqual((seen.returncode, seen.stdout), (125, b""))
            self.assertRegex(seen.stderr.decode(), answer)
            self.assertNotIn("turns", seen.stderr.decode())

    def test_words_that_do_not_go_together(self):
        for words, answer in ((["--reopen"], "--reopen: it is for the file of -o"),
                              (["--reopen", "-o", "-"], "--reopen: it is for the file of -o"),
                              (["--reopen", f"--record={self.log}"], "--reopen: a recording has no lines"),
                              (["--line-buffered", f"--record={self.log}"], "--line-buffered: a recording has no lines"),
                              (["--interval=1s"], "--interval: it is for counts"),
                              (["--line-buffered", "--format=chrome", "-o", self.log], "--line-buffered: --format=chrome is one whole")):
            seen = harness.run([harness.tool(), *words, "-p", "malloc", "true"])
            self.assertEqual(seen.returncode, 125)
            self.assertIn(answer, seen.stderr.decode())


if __name__ == "__main__":
    harness.main()
