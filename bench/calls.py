#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the system calls cost a traced program that the agent sees.

    scripts/bench calls [--calls N] [--repetitions N] [--tool FILE]

This script makes one program that makes each kind of call again and again, and runs it untraced, under the tool, and under the tool
with breakpoints alone, in turn; no probe is hit. Times are CPU time of the thread, nanoseconds a turn, medians of all repetitions.
"""
import argparse
import os
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static sigset_t set;
static struct sigaction action;
static void handle(int number) { (void)number; }
static void* nothing(void* unused) { return unused; }
static void mask(void) { sigprocmask(SIG_BLOCK, NULL, &set); }
static void change(void) { sigaction(SIGUSR2, NULL, &action); }
static void pages(void) { munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096); }
static void file(void) { close(open("/dev/null", O_RDONLY)); }
static void signal_oneself(void) { raise(SIGUSR1); }
static void thread(void) {
  pthread_t one;
  if (pthread_create(&one, NULL, nothing, NULL) == 0) pthread_join(one, NULL);
}
__attribute__((noinline)) void never(void) { __asm__ volatile("" ::: "memory"); }
static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}
int main(int count, char** words) {
  static const struct {
    const char* name;
    void (*make)(void);
    int share;
  } kinds[] = {{"sigprocmask", mask, 1},   {"sigaction", change, 1},     {"mmap and munmap", pages, 4},
               {"open and close", file, 4}, {"raise", signal_oneself, 4}, {"pthread_create", thread, 40}};
  const long calls = atol(words[count - 1]);
  action.sa_handler = handle;
  sigaction(SIGUSR1, &action, NULL);
  if (count > 2) never();
  for (unsigned kind = 0; kind < sizeof kinds / sizeof kinds[0]; ++kind) {
    const long turns = calls / kinds[kind].share;
    const double begin = now();
    for (long i = 0; i < turns; ++i) kinds[kind].make();
    printf("%s: %.0f\n", kinds[kind].name, (now() - begin) / (double)turns);
  }
  return 0;
}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100000)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--tool", default=os.path.join(ROOT, "build", "uprobe-run"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="uprobe-bench.") as folder:
        program = os.path.join(folder, "calls")
        with open(program + ".c", "w", encoding="ascii") as file:
            file.write(SOURCE)
        subprocess.run(["gcc", "-O2", "-pthread", "-o", program, program + ".c"], check=True)
        traced = [options.tool, "-o", "/dev/null", "-p", f"p:never {program}:never"]
        ways = {"untraced": [], "traced": [*traced, "--"], "by int3": [*traced, "--tier=int3", "--"]}
        seen = {}
        for _ in range(options.repetitions):
            for way, words in ways.items():
                text = subprocess.run([*words, program, str(options.calls)], check=True, stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, text=True).stdout
                for line in text.splitlines():
                    name, _, time = line.partition(": ")
                    seen.setdefault(name, {}).setdefault(way, []).append(float(time))
    print(f"{'ns a turn':<18}" + "".join(f"{way:>12}" for way in ways))
    for name, times in seen.items():
        print(f"{name:<18}" + "".join(f"{statistics.median(times[way]):>12,.0f}" for way in ways))


if __name__ == "__main__":
    main()
