#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long a program stands still while probes are added to it and removed again.

    scripts/bench attach [--times N] [--threads N] [--probes N] [--tier T]

This script makes a program of many threads and functions. One more thread reads the clock all the time and notes when it was
away; the program stood still for the longest such moment between the start of an attach and its end. The share of the
scheduler is in the last row, where no tool attaches: on a busy machine it is not small.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE = r"""
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
%(functions)s
static long (*const functions[])(long) = {%(names)s};
enum { kFunctions = sizeof functions / sizeof *functions };

static void* work(void* argument) {
  for (long at = (long)argument;; ++at) {
    functions[at %% kFunctions](at);
    if (at %% 10 == 0) usleep(2000);
  }
}
static long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}
int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (long i = 0; i < atol(argv[argc - 1]); ++i) pthread_create(&(pthread_t){0}, 0, work, (void*)(i * 17));
  setvbuf(stdout, 0, _IOLBF, 0);
  puts("ready");
  for (long last = now();;) {
    const long time = now();
    const long away = time - last;
    if (away > 100000) printf("%%ld %%ld\n", last, time);
    last = away > 100000 ? now() : time;
  }
}
"""


def build(folder, functions):
    source = os.path.join(folder, "subject.c")
    with open(source, "w", encoding="ascii") as file:
        file.write(SOURCE % {
            "functions": "\n".join(f"__attribute__((noinline)) long f{i}(long n) {{ return n * {i + 3} + {i}; }}"
                                   for i in range(functions)),
            "names": ", ".join(f"f{i}" for i in range(functions))})
    program = os.path.join(folder, "subject")
    subprocess.run(["cc", "-O2", "-pthread", "-o", program, source], check=True)
    return program


class Subject:
    """The program; `pauses` are its moments away, in nanoseconds of CLOCK_MONOTONIC."""

    def __init__(self, program, threads, folder):
        self.noted = os.path.join(folder, "noted")
        with open(self.noted, "w", encoding="ascii") as out:
            self.process = subprocess.Popen([program, str(threads)], stdout=out)
        while not self.lines():
            time.sleep(0.01)
        time.sleep(0.3)

    def lines(self):
        with open(self.noted, encoding="ascii") as file:
            return file.read().split("\n")[1:-1]

    def longest(self, begin, end):
        pauses = [tuple(int(word) for word in line.split()) for line in self.lines()]
        return max((min(b, end) - max(a, begin) for a, b in pauses if b > begin and a < end), default=0) / 1e6


def attach(options, subject, program, folder):
    """The times (begin, attached, end) of an attach."""
    words = [options.tool, "-v", "-q", "-b", "1M", "-o", "/dev/null", "--tier", options.tier, "-i",
             os.path.join(folder, "probes"), "-P", str(subject.process.pid)]
    begin = time.monotonic_ns()
    with subprocess.Popen(words, stderr=subprocess.PIPE) as tool:
        for line in tool.stderr:
            if line.endswith(b"attached\n"):
                break
        attached = time.monotonic_ns()
        time.sleep(0.02)
        detaching = time.monotonic_ns()
        tool.terminate()
        err = tool.stderr.read()
    if tool.returncode != 0:
        sys.exit(f"the tool failed: {line.decode()}{err.decode()}")
    return begin, attached, detaching, time.monotonic_ns()


def row(name, values):
    values = sorted(values)
    at = lambda share: values[min(len(values) - 1, int(share * len(values)))]
    print(f"{name:<10}{statistics.median(values):>9.2f}{at(0.9):>9.2f}{at(0.99):>9.2f}{values[-1]:>9.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--probes", type=int, default=1000)
    parser.add_argument("--tier", default="auto")
    parser.add_argument("--tool", default=os.path.join(ROOT, "build", "uprobe-run"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = build(folder, options.probes)
        with open(os.path.join(folder, "probes"), "w", encoding="ascii") as file:
            file.writelines(f"p:f{i} {program}:f{i} %di\n" for i in range(options.probes))
        subject = Subject(program, options.threads, folder)
        moments = [attach(options, subject, program, folder) for _ in range(options.times)]
        quiet = []
        for _ in range(min(options.times, 50)):
            quiet.append((time.monotonic_ns(), time.sleep(0.1), time.monotonic_ns()))
        subject.process.kill()
        subject.process.wait()
        print(f"{options.probes} probes, {options.threads} threads, {options.times} times; milliseconds")
        print(f"{'':<10}{'median':>9}{'90%':>9}{'99%':>9}{'most':>9}")
        row("attach", [subject.longest(begin, attached) for begin, attached, _, _ in moments])
        row("detach", [subject.longest(detaching, end) for _, _, detaching, end in moments])
        row("nothing", [subject.longest(begin, end) for begin, _, end in quiet])


if __name__ == "__main__":
    main()
