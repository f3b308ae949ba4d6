# SPDX-License-Identifier: MIT
"""--export-rings: other programs read the hits from the memory of the rings. What a reader takes and what it reports as lost
is what the tool has recorded, whatever other readers do; a process that may not read gets nothing; nothing that a reader does is
noticed by the program or the tool.
"""
import os
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
import unittest

import harness

TOTALS = re.compile(r"^hits (\d+) names (\d+) lost (\d+)", re.M)

# work() is called `count` times by each of two threads, once a line is read.
PROGRAM = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static volatile long sum;
__attribute__((noinline, noclone)) void work(long n) { sum += n; __asm__ volatile("nop;nop;nop;nop;nop" ::: "memory"); }
static void* run(void* count) { for (long i = 0; i < (long)count; ++i) work(i); return 0; }
int main(int argc, char** argv) {
  char line[16];
  pthread_t other;
  while (fgets(line, sizeof line, stdin)) {
    pthread_create(&other, 0, run, (void*)atol(argv[1]));
    run((void*)atol(argv[1]));
    pthread_join(other, 0);
    puts("done");
    fflush(stdout);
  }
  return 7;
}
"""


def setUpModule():
    harness.need("cc")
    harness.tool()


class RingsCase(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.socket = self.path("socket")
        source = self.write("worker.c", PROGRAM)
        self.program = harness.compiled(["cc", "-O1", "-g", "-pthread", source], self.path("worker"))
        headers = self.path("include")
        os.mkdir(headers)
        os.symlink(os.path.join(harness.Options.source, "library/uprobe"), os.path.join(headers, "uprobe"))
        self.examples = os.path.join(harness.Options.source, "library/examples")

    def c_reader(self):
        reader = self.path("ring_reader")
        subprocess.run(["cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2", "-I", self.path("include"),
                        os.path.join(self.examples, "ring_reader.c"), "-o", reader], check=True)
        return [reader, self.socket]

    def python_reader(self):
        return [sys.executable, os.path.join(self.examples, "ring_reader.py"), self.socket]

    def start(self, command, **more):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, start_new_session=True, **more)
        self.addCleanup(harness.stop_group, process)
        return process

    def start_tool(self, count, *options, cpu=None):
        pin = None if cpu is None else lambda: os.sched_setaffinity(0, {cpu})
        process = self.start([*harness.tracer("-o", self.path("trace"), f"--export-rings={self.socket}", *options),
                              "-p", f"p:work {self.program}:work n=%di", "--", self.program, str(count)], preexec_fn=pin)
        harness.wait_until(lambda: self.is_served() or process.poll() is not None, "the socket")
        return process

    def is_served(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            return probe.connect_ex(self.socket) == 0

    def start_reader(self, command):
        """A reader that has mapped the rings."""
        reader = self.start(command)
        harness.wait_until(lambda: self.has_mapped(reader.pid) or reader.poll() is not None, "the reader")
        return reader

    @staticmethod
    def has_mapped(pid):
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            return "uprobe-session-live" in file.read()

    @staticmethod
    def looks(reader):
        """How often it has gone to sleep: it has read all that there was by then."""
        with open(f"/proc/{reader.pid}/status", encoding="ascii", errors="replace") as file:
            return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)$", file.read(), re.M)[1])

    def work(self, tool):
        tool.stdin.write("\n")
        tool.stdin.flush()
        self.assertEqual(tool.stdout.readline(), "done\n")

    def finish(self, tool):
        """The hits that the tool has recorded."""
        _, errors = tool.communicate(timeout=harness.TIMEOUT)
        self.assertEqual(tool.returncode, 7, errors)
        with open(self.path("trace"), encoding="latin-1") as file:
            return sum(1 for line in file if ": work: " in line)

    def totals(self, reader):
        """(hits, names, lost)"""
        output, errors = reader.communicate(timeout=harness.TIMEOUT)
        self.assertEqual(reader.returncode, 0, errors)
        return tuple(map(int, TOTALS.search(output).groups())), output


class Readers(RingsCase):
    def test_each_reader_gets_every_hit(self):
        tool = self.start_tool(1000)
        readers = [self.start_reader(self.c_reader()), self.start_reader(self.python_reader())]
        self.work(tool)
        hits = self.finish(tool)
        self.assertEqual(hits, 2000)
        for reader in readers:
            (taken, _, lost), output = self.totals(reader)
            self.assertEqual((taken, lost), (2000, 0), output[-300:])
        self.assertFalse(os.path.exists(self.socket))

    def test_the_python_reader_prints_values_by_the_format(self):
        tool = self.start_tool(3)
        reader = self.start_reader(self.python_reader())
        self.work(tool)
        self.finish(tool)
        _, output = self.totals(reader)
        values = re.findall(r"^\d+\.\d{6} \d+ work .*\bn=(\S+)", output, re.M)
        self.assertEqual(sorted(values), ["0x0", "0x0", "0x1", "0x1", "0x2", "0x2"])
        with open(self.path("trace"), encoding="latin-1") as file:
            of_trace = [float(time) for time in re.findall(r" (\d+\.\d{6}): work: ", file.read())]
        of_reader = sorted(float(time) for time in re.findall(r"^(\d+\.\d{6}) ", output, re.M))
        for one, other in zip(of_reader, of_trace, strict=True):
            self.assertAlmostEqual(one, other, delta=0.01)

    def test_taken_and_lost_are_what_was_recorded(self):
        """Also of a reader that is stopped while the rings come around, and of others beside it."""
        tool = self.start_tool(60000, "-b", "256K")
        complete, stopped = self.start_reader(self.c_reader()), self.start_reader(self.c_reader())
        harness.stop(stopped.pid)
        self.work(tool)
        os.kill(stopped.pid, signal.SIGCONT)
        self.work(tool)
        hits = self.finish(tool)
        ((first, names, lost), _), ((second, more, missed), _) = self.totals(complete), self.totals(stopped)
        self.assertEqual(first + names + lost, second + more + missed)  # each record of each ring, taken or lost
        self.assertLessEqual(hits, first + lost)
        self.assertGreaterEqual(hits, first)
        self.assertGreater(missed, 0)
        if lost == 0:
            self.assertEqual(hits, first)

    def test_a_full_ring_spills_into_others(self):
        """The tool is stopped, so that hits on one CPU fill its ring and go on in others: the reader finds them there."""
        size, record = 256 * 1024, 48
        count = 5 * size // record // 4  # by each of two threads: two and a half rings
        tool = self.start_tool(count, "-b", str(size), cpu=min(os.sched_getaffinity(0)))
        reader = self.start_reader(self.c_reader())
        harness.stop(tool.pid)
        try:
            self.work(tool)
            looks = self.looks(reader)  # the tool gives back what it has read, also if this reader has not
            harness.wait_until(lambda: self.looks(reader) > looks + 2, "the reader has looked")
        finally:
            os.kill(tool.pid, signal.SIGCONT)
        self.assertEqual(self.finish(tool), 2 * count)
        (taken, _, lost), _ = self.totals(reader)
        self.assertEqual((taken, lost), (2 * count, 0))  # what the tool has not read is not overwritten

    def test_a_reader_that_dies_is_not_noticed(self):
        tool = self.start_tool(5000)
        victim, reader = self.start_reader(self.c_reader()), self.start_reader(self.c_reader())
        victim.kill()
        self.work(tool)
        self.assertEqual(self.finish(tool), 10000)
        (taken, _, lost), _ = self.totals(reader)
        self.assertEqual(taken + lost, 10000)

    def test_a_reader_outlives_a_killed_tool(self):
        tool = self.start_tool(1000)
        reader = self.start_reader(self.c_reader())
        tool.kill()
        (taken, _, _), _ = self.totals(reader)
        self.assertEqual(taken, 0)

    def test_the_socket_of_a_killed_tool_is_taken_over(self):
        self.start_tool(1000).kill()
        harness.wait_until(lambda: not self.is_served(), "the end of the killed tool")
        self.assertTrue(os.path.exists(self.socket))
        tool = self.start_tool(1000)
        reader = self.start_reader(self.c_reader())
        self.work(tool)
        self.assertEqual(self.finish(tool), 2000)
        (taken, _, lost), _ = self.totals(reader)
        self.assertEqual((taken, lost), (2000, 0))
        self.assertFalse(os.path.exists(self.socket))

    def test_an_event_that_is_added_later(self):
        tool = self.start_tool(10)
        reader = self.start_reader(self.python_reader())
        subprocess.run([harness.tool(), f"--control={tool.pid}", "-p", f"p:more {self.program}:work later=%di"], check=True,
                       capture_output=True)
        self.work(tool)
        self.finish(tool)
        _, output = self.totals(reader)
        self.assertEqual(len(re.findall(r" more .*\blater=0x", output)), 20)

    def test_attached(self):
        process = self.start([self.program, "500"])
        tool = self.start([*harness.tracer("-o", self.path("trace"), f"--export-rings={self.socket}"), "-p",
                           f"p:work {self.program}:work", "-P", str(process.pid)])
        harness.wait_until(lambda: self.is_served() or tool.poll() is not None, "the socket")
        reader = self.start_reader(self.c_reader())
        self.work(process)
        tool.send_signal(signal.SIGTERM)  # a shell ignores SIGINT for what it starts in the background
        self.assertEqual(tool.wait(harness.TIMEOUT), 0, tool.stderr.read())
        (taken, _, lost), _ = self.totals(reader)
        self.assertEqual((taken, lost), (1000, 0))
        self.assertFalse(os.path.exists(self.socket))
        self.work(process)


@unittest.skipUnless(os.geteuid() == 0, "needs root")
class Domains(RingsCase):
    def test_a_later_domain_comes_as_a_further_part(self):
        harness.need("setpriv")
        os.chmod(self.folder, 0o755)
        tool = self.start([*harness.tracer("-o", self.path("trace"), f"--export-rings={self.socket}"), "-p",
                           f"p:work {self.program}:work", "--", "sh", "-c",
                           f"read line; echo | {self.program} 100; echo | setpriv --reuid=65534 --regid=65534 --clear-groups "
                           f"{self.program} 100; exit 7"])
        harness.wait_until(lambda: self.is_served() or tool.poll() is not None, "the socket")
        reader = self.start_reader(self.c_reader())
        tool.stdin.write("\n")
        tool.stdin.flush()
        tool.stdout.readline(), tool.stdout.readline()
        self.assertEqual(self.finish(tool), 400)
        (taken, _, lost), _ = self.totals(reader)
        self.assertEqual((taken, lost), (400, 0))

    def test_another_user_gets_nothing(self):
        tool = self.start_tool(10)
        os.chmod(self.folder, 0o755)
        command = self.c_reader()
        refused = harness.run(command, before_exec=harness.become)
        self.assertEqual(refused.returncode, 1)
        self.assertIn(b"Permission denied", refused.stderr)
        os.chmod(self.socket, 0o666)  # the socket's mode is not all that keeps others out
        refused = harness.run(command, before_exec=harness.become)
        self.assertEqual(refused.returncode, 1)
        self.assertIn(b"another user's", refused.stderr)
        self.assertIn(b"the session is another user's", self.answer_to(harness.become))
        self.work(tool)
        self.assertEqual(self.finish(tool), 20)

    def answer_to(self, become):
        """The tool's first message to another user's process."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                become()
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                    connection.connect(self.socket)
                    os.write(writing, connection.recv(8192))
            finally:
                os._exit(0)
        os.close(writing)
        with open(reading, "rb") as pipe:
            answer = pipe.read()
        os.waitpid(child, 0)
        return answer

    def test_root_without_capabilities_gets_nothing(self):
        harness.need("setpriv")
        tool = self.start_tool(10)
        refused = harness.run(["setpriv", "--bounding-set=-all", "--inh-caps=-all", *self.python_reader()])
        self.assertEqual(refused.returncode, 1)
        self.assertIn(b"PermissionError", refused.stderr)
        self.work(tool)
        self.assertEqual(self.finish(tool), 20)


class Hostile(RingsCase):
    def connection(self):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(connection.close)
        connection.connect(self.socket)
        return connection

    def test_the_tool_and_the_program_do_not_notice(self):
        tool = self.start_tool(2000)
        held = [self.connection() for _ in range(100)]  # more than there can be, all silent
        for data in (b"\0", b"\xff" * 8192, struct.pack("=IIII", 1, 48, 0x676E7275, 1) + b"0" * 32):
            connection = self.connection()
            for _ in range(20):
                try:
                    connection.send(data)
                except OSError:
                    break
        files = [os.open("/dev/null", os.O_RDONLY) for _ in range(10)]
        socket.send_fds(self.connection(), [b"x"], files)
        for file in files:
            os.close(file)
        reader = self.start_reader(self.c_reader())
        self.work(tool)
        self.assertEqual(self.finish(tool), 4000)
        (taken, _, lost), _ = self.totals(reader)
        self.assertEqual((taken, lost), (4000, 0))
        for connection in held:
            connection.close()

    def test_a_reader_gets_no_writable_descriptor(self):
        tool = self.start_tool(10)
        sys.path.insert(0, self.examples)
        self.addCleanup(sys.path.remove, self.examples)
        import ring_reader
        taken = []
        session = ring_reader.Session(self.socket)
        session.add_part = taken.append
        while not taken:
            session.hear()
        self.addCleanup(os.close, taken[0])
        self.addCleanup(session.socket.close)
        with open(f"/proc/self/fdinfo/{taken[0]}", encoding="ascii") as file:
            flags = int(re.search(r"flags:\s*(\d+)", file.read())[1], 8)
        self.assertEqual(flags & os.O_ACCMODE, os.O_RDONLY)
        with self.assertRaises(OSError):
            os.write(taken[0], b"x")
        with self.assertRaises(OSError):
            os.ftruncate(taken[0], 0)
        self.work(tool)
        self.assertEqual(self.finish(tool), 20)


class Refusals(RingsCase):
    def refused(self, path, *options, words=()):
        marker = self.path("ran")
        seen = harness.run([*harness.tracer(f"--export-rings={path}", *options), "-p", f"p:work {self.program}:work", *words] +
                           ([] if words else ["--", "touch", marker]), cwd=self.folder)
        self.assertFalse(os.path.exists(marker), "the program ran")
        return seen.returncode, seen.stderr.decode()

    def assert_refused(self, path, expected, *options, **more):
        code, errors = self.refused(path, *options, **more)
        self.assertIn(expected, errors)
        self.assertIn(code, (2, 125), errors)

    def test_a_bad_socket_is_refused_before_the_program_starts(self):
        os.mkdir(self.path("open"))
        os.chmod(self.path("open"), 0o777)
        os.symlink("open", self.path("link"))
        file = self.write("file", "mine")
        for path, expected in ((file, "exists already"), (self.path("open/socket"), "others can write to"),
                               ("/tmp/socket-of-rings", "others can write to"), (self.path("link/socket"), "is a link or no folder"),
                               (self.path("missing/socket"), "No such file or directory"), (self.path("open/"), "is not the path of a socket"),
                               ("", "path is empty"), (self.path("n" * 120), "too long"), ("file/socket", "is a link or no folder")):
            with self.subTest(path=path):
                self.assert_refused(path, expected)
        with open(file, encoding="ascii") as kept:
            self.assertEqual(kept.read(), "mine")

    def test_calls_that_record_nothing(self):
        for options, words in ((("-c",), ()), (("--dry-run",), ()), (("--check",), ()), (("--control=1",), ("--list",))):
            with self.subTest(options=options):
                self.assert_refused(self.path("socket"), "--export-rings", *options, words=words)

    def test_a_relative_path_and_the_mode(self):
        process = self.start([*harness.tracer("-o", self.path("trace"), "--export-rings=here"), "-p", f"p:work {self.program}:work",
                              "--", self.program, "1"], cwd=self.folder)
        harness.wait_until(lambda: os.path.exists(self.path("here")) or process.poll() is not None, "the socket")
        self.assertEqual(stat.S_IMODE(os.stat(self.path("here")).st_mode), 0o600)
        self.work(process)
        self.assertEqual(self.finish(process), 2)
        self.assertFalse(os.path.exists(self.path("here")))


if __name__ == "__main__":
    harness.main()
