# SPDX-License-Identifier: MIT
"""--overflow=wait: a hit that finds the rings full waits for room, and for nothing else."""
import os
import pathlib
import re
import signal
import subprocess

import harness

SOURCE = r"""
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#define KEPT __attribute__((noinline, used))
KEPT long turn(long k) { asm volatile("" :: "r"(k) : "memory"); return k; }

/* sched_yield kills. */
static void forbid_yielding(void) {
  struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_yield, 0, 1),
                               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog program = {4, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) exit(9);
}

static long turns;
static void *work(void *first) {
  for (long k = 0; k < turns; ++k) turn((long)first + k);
  return 0;
}

int main(int argc, char **argv) {
  turns = atol(argv[1]);
  if (!strcmp(argv[2], "forever"))
    for (long k = 0;; ++k) {
      turn(k);
      if (k % 5000 == 0 && write(1, ".", 1) != 1) return 8;
    }
  if (!strcmp(argv[2], "filtered")) forbid_yielding();
  pthread_t other;
  if (!strcmp(argv[2], "threads") && pthread_create(&other, 0, work, (void *)turns)) return 7;
  work(0);
  if (!strcmp(argv[2], "threads")) pthread_join(other, 0);
  return puts("done") < 0;
}
"""


class Overflow(harness.TestCase):
    def setUp(self):
        super().setUp()
        source = self.write("turns.c", SOURCE)
        self.program = harness.compiled([harness.need("cc"), "-O1", "-pthread", source], self.path("turns"))
        self.trace = self.path("trace")
        self.words = harness.tracer("-b", "8K", "-o", self.trace, "-p", f"p:turn {self.program}:turn k=%di:u64")

    def recorded(self, turns, how, overflow="wait:1m"):
        done = harness.run([*self.words, f"--overflow={overflow}", "--", self.program, str(turns), how])
        self.assertEqual((done.returncode, done.stdout), (0, b"done\n"), done.stderr)
        with open(self.trace, encoding="utf-8") as trace:
            return done.stderr.decode(), [int(k) for k in re.findall(r"turn: \(0x[0-9a-f]+\) k=(\d+)$", trace.read(), re.MULTILINE)]

    def test_every_hit_is_recorded(self):
        turns = 50_000
        stderr, seen = self.recorded(turns, "alone")
        self.assertEqual(seen, list(range(turns)))
        self.assertNotIn("lost", stderr)

    def test_threads(self):
        turns = 20_000
        stderr, seen = self.recorded(turns, "threads")
        self.assertEqual(sorted(seen), list(range(2 * turns)))
        self.assertNotIn("lost", stderr)

    def test_without_a_system_call_that_a_filter_forbids(self):
        """The thread spins, and so may keep the tool from running: after half a second it goes on, and what it loses is counted."""
        turns = 20_000
        stderr, seen = self.recorded(turns, "filtered")
        self.assertEqual(seen, sorted(set(seen)))
        lost = re.search(r"lost ([\d,]+)", stderr)
        self.assertEqual(len(seen) + (int(lost[1].replace(",", "")) if lost else 0), turns)
        self.assertGreater(len(seen), 100)

    def test_dropped_hits_are_counted(self):
        """What waiting is compared with."""
        turns = 300_000
        stderr, seen = self.recorded(turns, "alone", "drop")
        lost = int(re.search(r"lost ([\d,]+)", stderr)[1].replace(",", ""))
        self.assertEqual(len(seen) + lost, turns)
        self.assertGreater(lost, 0)

    def test_a_tool_that_is_stopped_holds_no_program(self):
        tool = subprocess.Popen([*self.words, "--overflow=wait:1m", "--", self.program, "0", "forever"],
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(harness.stop_group, tool)
        self.assertEqual(tool.stdout.read(2), b"..")
        harness.stop(tool.pid)
        self.addCleanup(os.kill, tool.pid, signal.SIGCONT)
        self.assertEqual(len(tool.stdout.read(100)), 100)

    def test_the_newest_lines(self):
        """All hits are counted, and the file has the last ones, after the header."""
        turns = 20_000
        stderr, seen = self.recorded(turns, "alone", "overwrite:64K")
        self.assertEqual(seen, sorted(set(seen)))
        self.assertGreater(len(seen), 300)
        with open(self.trace, encoding="utf-8") as trace:
            text = trace.read()
        self.assertTrue(text.startswith("# tracer: "), text[:80])
        self.assertLess(len(text), (64 << 10) + 1000)
        dropped = int(re.search(r"uprobe-run: ([\d,]+) lines were too old for the trace", stderr)[1].replace(",", ""))
        lost = re.search(r"lost: ([\d,]+)", stderr)
        self.assertEqual(dropped + len(seen) + (int(lost[1].replace(",", "")) if lost else 0), turns)

    def test_the_newest_lines_at_a_signal(self):
        """And at the end those that have come since then."""
        tool = subprocess.Popen([*self.words, "--overflow=overwrite:64K", "--", self.program, "0", "forever"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        self.addCleanup(harness.stop_group, tool)
        self.assertEqual(len(tool.stdout.read(4)), 4)
        self.assertEqual(os.path.getsize(self.trace), 0)
        os.kill(tool.pid, signal.SIGUSR1)
        harness.wait_until(lambda: os.path.getsize(self.trace) > 10_000, "lines")
        os.killpg(tool.pid, signal.SIGINT)
        tool.communicate(timeout=harness.TIMEOUT)
        numbers = [int(k) for k in re.findall(r" k=(\d+)$", open(self.trace, encoding="utf-8").read(), re.MULTILINE)]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertLess(numbers[-1] - numbers[0] + 1, 10 ** 9)

    def test_the_newest_lines_at_a_trigger(self):
        """The hit that asks for them is among them, and those before it; nothing is written again."""
        tool = subprocess.Popen([*self.words, "--trigger=snapshot:1 if k >= 20000", "--overflow=overwrite:64K", "--", self.program, "0",
                                 "forever"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        self.addCleanup(harness.stop_group, tool)
        self.assertEqual(len(tool.stdout.read(5)), 5)
        harness.wait_until(lambda: os.path.getsize(self.trace) > 10_000, "lines")
        numbers = re.findall(r" k=(\d+)$", pathlib.Path(self.trace).read_text(encoding="utf-8"), re.MULTILINE)
        self.assertGreaterEqual(int(numbers[-1]), 20000)
        self.assertEqual(len(tool.stdout.read(40)), 40)
        self.assertLess(os.path.getsize(self.trace), (64 << 10) + 1000)
        os.killpg(tool.pid, signal.SIGINT)
        tool.communicate(timeout=harness.TIMEOUT)

    def test_a_snapshot_of_tables(self):
        done = harness.run([*harness.tracer("--hist-file", self.trace), "-p", f"p:turn {self.program}:turn k=%di:u64", "--disabled",
                            "--trigger=hist:keys=k.log2", "--trigger=snapshot if k == 7", "--", self.program, "200000", "alone"])
        self.assertEqual((done.returncode, done.stdout), (0, b"done\n"), done.stderr)
        tables = pathlib.Path(self.trace).read_text(encoding="utf-8").split("# trigger info")[1:]
        self.assertEqual(len(tables), 2)
        self.assertEqual([re.findall(r"2\^0 .*hitcount: +(\d+)", table) for table in tables], [["2"], ["2"]])

    def test_a_snapshot_of_nothing(self):
        done = harness.run([*self.words, "--trigger=snapshot", "--", self.program, "1", "alone"])
        self.assertEqual((done.returncode, done.stdout), (125, b""))
        self.assertIn(b"--trigger=snapshot: a snapshot writes what is kept until then, and nothing is kept", done.stderr)

    def test_what_cannot_be_kept_in_lines(self):
        for words in (["--record", self.trace], ["--format=ctf", "-o", self.trace], ["--format=html", "-o", self.trace],
                      ["--line-buffered", "-o", self.trace]):
            done = harness.run([*harness.tracer("--overflow=overwrite", *words), "-p", "malloc", "true"])
            self.assertEqual((done.returncode, done.stdout), (125, b""))
            self.assertIn(b"--overflow: overwrite keeps the newest lines in memory", done.stderr)

    def test_words(self):
        for word, answer in (("waits", "'waits' is not one of drop, wait\\[:TIME\\], overwrite\\[:SIZE\\]"), ("wait:2h", "'2h' is too long a time"),
                             ("wait:", "not a time|is no"), ("", "not one of drop"),
                             ("overwrite:1K", "'1K' is no size for the newest lines"), ("overwrite:lots", "'lots' is not a size")):
            done = harness.run([*harness.tracer(f"--overflow={word}"), "-p", "malloc", "true"])
            self.assertEqual((done.returncode, done.stdout), (125, b""))
            self.assertRegex(done.stderr.decode(), answer)


if __name__ == "__main__":
    harness.main()
