# SPDX-License-Identifier: MIT
"""Recordings that last: what is in them is what the program did, whatever happens to the tool, its files and its disk."""
import json
import os
import re
import signal
import subprocess

import harness

SOURCE = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
#define KEPT __attribute__((noinline, used))
KEPT void turn(long thread, long k) { asm volatile("" :: "r"(thread), "r"(k) : "memory"); }
KEPT void other(long thread, long k) { asm volatile("" :: "r"(thread), "r"(k) : "memory"); }
static long turns;
static const char *last;
void *work(void *number) {
  char name[16];
  snprintf(name, sizeof name, "worker-%ld", (long)number);
  prctl(PR_SET_NAME, name);
  for (long k = 0; k < turns || (last && access(last, 0)); ++k) k % 8 == 7 ? other((long)number, k) : turn((long)number, k);
  return 0;
}
int main(int argc, char **argv) {
  pthread_t threads[3];
  turns = atol(argv[1]);
  last = argv[2];
  for (long i = 0; i < 3; ++i) pthread_create(&threads[i], 0, work, (void *)i);
  for (int i = 0; i < 3; ++i) pthread_join(threads[i], 0);
  puts("done");
}
"""
DEFINITIONS = ["p:turn {0}:turn thread=%di:u64 k=%si:u64", "p:other {0}:other thread=%di:u64 k=%si:u64"]


class Recordings(harness.TestCase):
    def setUp(self):
        super().setUp()
        source = self.write("threads.c", SOURCE)
        self.program = harness.compiled([harness.need("cc"), "-O1", "-pthread", source], self.path("threads"))
        self.recording = self.path("recording")
        self.definitions = [word for one in DEFINITIONS for word in ("-p", one.format(self.program))]

    def words(self, *options):
        return harness.tracer(f"--record={self.recording}", "-b", "32M", *options, *self.definitions, "--", self.program)

    def hits(self, recording=None, code=0):
        seen = harness.run([harness.tool(), f"--replay={recording or self.recording}", "--format=json"])
        self.assertEqual(seen.returncode, code, seen.stderr)
        self.error = seen.stderr.decode()
        return [hit for hit in map(json.loads, seen.stdout.splitlines()) if "event" in hit]

    def check(self, hits, first_is_there=True):
        """All hits of each thread, in order, with its name, and all together by time."""
        self.assertEqual([hit["time"] for hit in hits], sorted(hit["time"] for hit in hits))
        for thread in range(3):
            own = [hit for hit in hits if hit["args"]["thread"] == thread]
            numbers = [hit["args"]["k"] for hit in own]
            first = 0 if first_is_there or not numbers else numbers[0]
            self.assertEqual(numbers, list(range(first, first + len(numbers))))
            self.assertEqual({hit["comm"] for hit in own}, {f"worker-{thread}"} if own else set())
            self.assertLessEqual(len({hit["tid"] for hit in own}), 1)

    def test_every_hit_of_threads_on_all_cpus(self):
        seen = harness.run([*self.words("-q"), "20000"])
        self.assertEqual((seen.returncode, seen.stdout, seen.stderr), (0, b"done\n", b""))
        hits = self.hits()
        self.assertEqual(len(hits), 60000)
        self.check(hits)
        self.assertEqual(sum(hit["event"] == "other" for hit in hits), 7500)

    def test_the_text_is_sorted_too(self):
        self.assertEqual(harness.run([*self.words("-q"), "3000"]).returncode, 0)
        seen = harness.run([harness.tool(), f"--replay={self.recording}"])
        times = [hit.time for hit in harness.parse_trace(seen.stdout.decode())]
        self.assertEqual((len(times), times), (9000, sorted(times)))

    def test_files_take_turns(self):
        """Each is read alone; together they have the last hits without a gap."""
        seen = harness.run([*self.words("-q", "--limit=256K", "--rotate=3"), "40000"])
        self.assertEqual((seen.returncode, seen.stdout, seen.stderr), (0, b"done\n", b""))
        files = [self.recording + ending for ending in (".2", ".1", "")]
        self.assertFalse(os.path.exists(self.recording + ".3"))
        hits = []
        for file in files:
            facts = os.stat(file)
            self.assertEqual(facts.st_mode & 0o7777, 0o600)
            self.assertLessEqual(facts.st_size, 256 << 10)
            hits += self.hits(file)
            self.assertEqual(self.error, "")
        self.assertGreater(len(hits), 3000)
        self.assertLess(len(hits), 120000)
        hits.sort(key=lambda hit: hit["time"])
        self.check(hits, first_is_there=False)
        for thread in range(3):
            own = [hit["args"]["k"] for hit in hits if hit["args"]["thread"] == thread]
            self.assertTrue(not own or own[-1] == 39999)

    def test_no_link_is_followed(self):
        victim = self.write("victim", "precious")
        os.symlink(victim, self.recording + ".1")
        seen = harness.run([*self.words("-q", "--limit=256K", "--rotate=3"), "20000"])
        self.assertEqual((seen.returncode, seen.stdout), (0, b"done\n"))
        self.assertRegex(seen.stderr.decode(), r"^uprobe-run: .*recording: a further file cannot be begun: recording\.1 is not a regular file; "
                                               r"the trace ends here, the program goes on\n$")
        self.assertEqual(open(victim).read(), "precious")
        self.check(self.hits())

    def test_what_cannot_rotate_is_refused(self):
        for words, answer in ((["--record=/dev/null", "--limit=1M", "--rotate=2"], "/dev/null: is no file that can get another name"),
                              ([f"--record={self.recording}", "--rotate=2"], "--rotate: a further file begins where one is full"),
                              ([f"--record={self.recording}", "--limit=1M", "--rotate=1"], "'1' is not a number of files"),
                              (["--replay=f", "--rotate=2"], "a recording is printed, and --record makes one")):
            definitions = [] if words[0].startswith("--replay") else [*self.definitions, "--", self.program, "1"]
            seen = harness.run([harness.tool(), *words, *definitions])
            self.assertEqual((seen.returncode, seen.stdout), (125, b""))
            self.assertIn(answer, seen.stderr.decode())

    def test_a_full_disk(self):
        """Of a megabyte: one line, the program goes on, the loss is counted, and what is there can be printed."""
        folder = self.path("disk")
        os.mkdir(folder)
        self.recording = os.path.join(folder, "recording")
        copy = self.path("copy")
        script = 'mount -t tmpfs -o size=1M none "$0" && folder="$0" && copy="$1" && shift && "$@"; code=$?; cp "$folder/recording" "$copy"; exit $code'
        unshare = [harness.need("unshare"), "--user", "--map-root-user", "--mount", "sh", "-c", script, folder, copy]
        seen = harness.run([*unshare, *self.words(), "100000"])
        self.assertEqual((seen.returncode, seen.stdout), (0, b"done\n"), seen.stderr)
        error = seen.stderr.decode()
        self.assertEqual(error.count("writing failed: No space left on device; the trace ends here, the program goes on"), 1)
        self.assertRegex(error, r"uprobe-run: [1-9][0-9]* hits or more were recorded and could not be written\n")
        hits = self.hits(copy, code=1)
        self.assertGreater(len(hits), 3000)
        self.assertRegex(self.error, "^uprobe-run: .*: the recording breaks off at byte")

    def test_a_full_disk_of_files(self):
        """Formats that write files themselves say the same, and count what is missing."""
        folder = self.path("disk")
        os.mkdir(folder)
        script = 'mount -t tmpfs -o size=1M none "$0" && "$@"'
        unshare = [harness.need("unshare"), "--user", "--map-root-user", "--mount", "sh", "-c", script, folder]
        for output_format in ("ctf", "trace.dat"):
            output = os.path.join(folder, output_format)
            words = harness.tracer(f"--format={output_format}", "-o", output, *self.definitions, "--", self.program, "30000")
            seen = harness.run([*unshare, *words])
            self.assertEqual((seen.returncode, seen.stdout), (0, b"done\n"), seen.stderr)
            error = seen.stderr.decode()
            self.assertEqual(error.count("writing failed: No space left on device; the trace ends here, the program goes on"), 1)
            self.assertRegex(error, r"uprobe-run: [1-9][0-9]* hits or more were recorded and could not be written\n")

    def test_a_tool_that_is_killed(self):
        """All but the last blocks of each ring is there."""
        process = subprocess.Popen([*self.words(), "1", self.path("end")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(harness.stop_group, process)
        harness.wait_until(lambda: os.path.exists(self.recording) and os.path.getsize(self.recording) > 4 << 20, "four megabytes")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        self.write("end", "")
        hits = self.hits(code=1)
        self.assertGreater(len(hits), 40000)
        self.assertTrue(re.search("the recording (breaks off at byte|has no end)", self.error), self.error)
        for thread in range(3):
            numbers = [hit["args"]["k"] for hit in hits if hit["args"]["thread"] == thread]
            self.assertEqual(numbers, sorted(numbers))

    def test_a_pipe_is_refused(self):
        seen = subprocess.run([harness.tool(), "--replay=/dev/stdin"], input=b"UPREC\r\n\0", capture_output=True, timeout=60)
        self.assertEqual(seen.returncode, 125)
        self.assertIn(b"is a fifo: a recording is a regular file", seen.stderr)


if __name__ == "__main__":
    harness.main()
