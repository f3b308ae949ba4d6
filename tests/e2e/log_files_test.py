# SPDX-License-Identifier: MIT
"""The trace as other programs keep it: files that are moved away and opened anew, readers of lines, readers that go away."""
import os
import re
import select
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


class Turns(harness.TestCase):
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


class LogFiles(Turns):
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

    def test_each_file_has_the_names_of_its_columns(self):
        tool = self.start(harness.tracer("-q", "-o", self.log, "--reopen", "--format=csv", "-p", self.definition, "--", self.program, self.end),
                          stderr=subprocess.PIPE)
        harness.wait_until(lambda: os.path.exists(self.log) and os.path.getsize(self.log) > 1000, "lines")
        os.rename(self.log, f"{self.log}.1")
        os.kill(tool.pid, signal.SIGHUP)
        harness.wait_until(lambda: os.path.exists(self.log) and os.path.getsize(self.log) > 1000, "lines in the new file")
        self.write("end", "")
        tool.communicate(timeout=harness.TIMEOUT)
        files = [open(name, encoding="utf-8").read().splitlines() for name in (f"{self.log}.1", self.log)]
        self.assertTrue(files[0][0].startswith("time,cpu,pid,tid,comm,event"))
        self.assertEqual(files[0][0], files[1][0])
        self.assertEqual([file.count(files[0][0]) for file in files], [1, 1])

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

    def test_calls_for_prometheus(self):
        """With -c: hits, and a summary of the calls' times."""
        file = self.path("calls.prom")
        tool = self.start(harness.tracer("-c", f"--prometheus={file}", "--interval=20ms", "-p", f"{self.program}:turn", "--",
                                         self.program, self.end), stderr=subprocess.PIPE)
        count = re.compile(r'^uprobe_call_duration_seconds_count\{session="\d+",event="turn",place="[^"]+:0x[0-9a-f]+"\} (\d+)$', re.MULTILINE)
        seen = lambda: count.search(open(file).read()) if os.path.exists(file) else None
        harness.wait_until(lambda: seen() and int(seen()[1]) > 20, "calls")
        self.assertRegex(open(file).read(), r'\nuprobe_hits_total\{[^}]*event="calls/turn"\} [1-9]')
        self.write("end", "")
        error = tool.communicate(timeout=harness.TIMEOUT)[1].decode()
        turns = re.search(r"(\d+) turns\n", error)[1]
        text = open(file).read()
        self.assertEqual(seen()[1], turns)
        self.assertRegex(text, r'\nuprobe_hits_total\{[^}]*event="calls/turn"\} ' + turns + r"\n")
        self.assertRegex(text, r'\nuprobe_call_duration_seconds\{[^}]*,quantile="0.99"\} 0\.\d{9}\n')

    def asked(self, path, request=b"GET /metrics HTTP/1.0\r\n\r\n"):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)  # waits where many others do
            client.settimeout(harness.TIMEOUT)
            client.sendall(request)
            answer = b""
            while part := client.recv(65536):
                answer += part
        return answer.decode()

    def test_counts_over_a_socket(self):
        """To several clients, beside some that say nothing, do not read or talk nonsense; the program is served as ever."""
        path = self.path("counts.sock")
        tool = self.start(harness.tracer("-o", self.log, f"--prometheus=unix:{path}", "--session=web" + str(os.getpid()), "-p",
                                         self.definition, "--", self.program, self.end), stderr=subprocess.PIPE)
        harness.wait_until(lambda: os.path.exists(path), "the socket")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        silent = [socket.socket(socket.AF_UNIX) for _ in range(40)]
        for number, client in enumerate(silent):
            self.addCleanup(client.close)
            client.connect(path)
            client.sendall((b"", b"GET /me", b"GET /metrics HTTP/1.0\r\n\r\n")[number % 3])
        hits = lambda: int(re.search(r'\nuprobe_hits_total\{[^}]*,event="uprobes/turn"\} (\d+)\n', self.asked(path))[1])
        harness.wait_until(lambda: os.path.exists(self.log) and len(self.numbers(self.log)) > 20, "hits")
        first = hits()
        self.assertGreater(first, 20)
        harness.wait_until(lambda: hits() > first, "further counts")
        head, text = self.asked(path).split("\r\n\r\n")
        self.assertRegex(head, r"\AHTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n")
        self.assertIn(f"Content-Length: {len(text)}\r\n", head)
        self.assertIn('session="web', text)
        self.write("text.prom", text)
        self.assertEqual(self.counts(self.path("text.prom"))["uprobe_tracing", None], 1)
        self.assertEqual(self.asked(path, b"\xff\x00\n\n").split("\r\n")[0], "HTTP/1.0 400 Bad Request")
        self.assertEqual(self.asked(path, b"GET /x HTTP/1.1\r\n\r\n").split("\r\n")[0], "HTTP/1.0 404 Not Found")
        if shutil.which("curl"):
            seen = harness.run(["curl", "-sf", "--unix-socket", path, "http://localhost/metrics"])
            self.assertEqual((seen.returncode, seen.stdout[:24]), (0, b"# HELP uprobe_tracing Wh"))
        self.write("end", "")
        error = tool.communicate(timeout=harness.TIMEOUT)[1].decode()
        turns = int(re.search(r"(\d+) turns\n", error)[1])
        self.assertEqual((tool.returncode, self.numbers(self.log)), (0, list(range(turns))))
        self.assertFalse(os.path.exists(path))

    def test_a_socket_while_attached_and_what_another_has_put_there(self):
        path = self.path("counts.sock")
        program = self.start([self.program, self.end], stderr=subprocess.DEVNULL)
        words = harness.tracer("-q", "-o", self.log, f"--prometheus=unix:{path}", "-p", self.definition, "-P", str(program.pid))
        tool = self.start(words, stderr=subprocess.PIPE)
        harness.wait_until(lambda: self.has_lines(self.log), "hits")
        self.assertIn('event="uprobes/turn"', self.asked(path))
        second = harness.run(words)
        self.assertEqual(second.returncode, 125)
        self.assertIn(b"counts.sock: exists already", second.stderr)
        os.unlink(path)
        self.write("counts.sock", "mine")
        tool.send_signal(signal.SIGINT)
        self.assertEqual((tool.wait(harness.TIMEOUT), tool.stderr.read()), (0, b""))
        self.assertEqual(open(path).read(), "mine")
        self.write("end", "")

    def test_counts_that_cannot_be_written(self):
        """Refused before the program runs."""
        for file, answer in (("/nowhere/counts.prom", "cannot be written|No such file"), ("unix:", "the counts go to a file or a socket"), ("unix:/tmp/counts", "others can write to")):
            seen = harness.run([harness.tool(), "-q", "-o", self.log, f"--prometheus={file}", "-p", self.definition, self.program, self.end])
            self.assertEqual((seen.returncode, seen.stdout), (125, b""))
            self.assertRegex(seen.stderr.decode(), answer)
            self.assertNotIn("turns", seen.stderr.decode())

    def test_words_that_do_not_go_together(self):
        for words, answer in ((["--reopen"], "--reopen: it is for the file of -o"),
                              (["--reopen", "-o", "-"], "--reopen: it is for the file of -o"),
                              (["--reopen", f"--record={self.log}"], "--reopen: a recording has no lines"),
                              (["--line-buffered", f"--record={self.log}"], "--line-buffered: a recording has no lines"),
                              (["--interval=1s"], "--interval: it is for tables and counts"),
                              (["--reopen", "--format=folded", "-o", self.log], "--reopen: --format=folded is one whole"),
                              (["--line-buffered", "--format=chrome", "-o", self.log], "--line-buffered: --format=chrome is one whole")):
            seen = harness.run([harness.tool(), *words, "-p", "malloc", "true"])
            self.assertEqual(seen.returncode, 125)
            self.assertIn(answer, seen.stderr.decode())


class Progress(Turns):
    def attach_on_a_terminal(self, *options):
        """Returns the tool, the traced program, and the terminal's other end."""
        program = self.start([self.program, self.end], stderr=subprocess.DEVNULL)
        outer, inner = os.openpty()
        self.addCleanup(os.close, outer)
        tool = self.start([*harness.tracer(*options), "-P", str(program.pid), "-p", self.definition],
                          stdin=inner, stdout=inner, stderr=inner)
        os.close(inner)
        return tool, program, outer

    def end_and_read(self, tool, program, outer, seen=b""):
        open(self.end, "w").close()
        self.assertEqual((program.wait(), tool.wait()), (0, 0))
        while select.select([outer], [], [], 0)[0]:
            try:
                more = os.read(outer, 65536)
            except OSError:  # no process has the terminal any more
                break
            if not more:
                break
            seen += more
        return seen

    def read_until(self, tool, outer, wanted):
        seen = b""
        while not re.search(wanted, seen):
            self.assertIsNone(tool.poll(), seen)
            if select.select([outer], [], [], 1)[0]:
                seen += os.read(outer, 65536)
        return seen

    def test_a_line_on_a_terminal(self):
        """While the trace goes to a file; at the end the line is gone."""
        tool, program, outer = self.attach_on_a_terminal("-o", self.log)
        seen = self.read_until(tool, outer, rb"\r\x1b\[K[\d,]+ hits, [\d,]+ a second, none lost, [\d.]+ kB written")
        seen = self.end_and_read(tool, program, outer, seen)
        self.assertRegex(seen, rb"written\r\x1b\[K[^\r]*(\r\n|$)")
        self.assertTrue(self.numbers(self.log))

    def test_no_line_over_the_trace(self):
        tool, program, outer = self.attach_on_a_terminal()
        seen = self.read_until(tool, outer, rb"turn: \(")
        self.assertNotIn(b"a second", self.end_and_read(tool, program, outer, seen))

    def test_no_line_with_q(self):
        tool, program, outer = self.attach_on_a_terminal("-q", "-o", self.log)
        harness.wait_until(lambda: self.has_lines(self.log), "records")
        self.assertNotIn(b"a second", self.end_and_read(tool, program, outer))

    def test_the_first_loss_is_told_at_once(self):
        """The program goes on until the line was there."""
        source = self.write("burst.c", SOURCE.replace("usleep(200);", "if (k % 1000) k += 0;").replace(
            "access(argv[1], 0)", "k % 4096 || access(argv[1], 0)"))
        burst = harness.compiled([harness.need("cc"), "-O1", source], self.path("burst"))
        tool = self.start([*harness.tracer("-b", "8K", "-o", self.log), "-p", f"p:turn {burst}:turn k=%di:u64", "--", burst, self.end],
                          stderr=subprocess.PIPE)
        first = tool.stderr.readline().decode()
        open(self.end, "w").close()
        rest = tool.communicate(timeout=harness.TIMEOUT)[1].decode()
        self.assertRegex(first, r"^uprobe-run: the first hits are lost \([\d,]+ of [\d,]+ by now, of uprobes/turn\): the summary ")
        self.assertEqual(tool.returncode, 0)
        self.assertEqual(rest.count("first hits are lost"), 0)
        self.assertRegex(rest, r"\d+ turns\n")


if __name__ == "__main__":
    harness.main()
