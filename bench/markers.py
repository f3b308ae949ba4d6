#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What marks (library/uprobe/marker.h) cost a program: places that no tool wants, and places that are recorded.

    scripts/bench markers [--places N] [--turns N] [--repetitions N]

This script makes one program of many functions twice, with a mark in each and without, and runs both in turn. A place that is
off costs the difference. Then the program calls one function with a mark, which is recorded, and the same function without, which
has a probe that records the same values. Times are CPU time of the thread; each figure is the median of all repetitions.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uprobe/marker.h>
%(functions)s
static long (*const functions[])(long, const char*) = {%(names)s};
enum { kFunctions = sizeof functions / sizeof *functions };

__attribute__((noinline)) long marked(long a, long b, const char* text) {
  UPROBE_MARK(bench, marked, "a=%%ld b=%%ld text=%%s", a, b, text);
  return a + b;
}
__attribute__((noinline)) long plain(long a, long b, const char* text) {
  __asm__ volatile("" : : "r"(text));
  return a - b;
}
__attribute__((noinline)) long tested(long a, long b, const char* text) {
  if (UPROBE_MARK_ENABLED(bench, tested)) UPROBE_MARK(bench, tested, "a=%%ld length=%%zu", a, strlen(text));
  return a ^ b;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}
static volatile long sum;
static double all(long turns) {
  const double begin = now();
  for (long turn = 0; turn < turns; ++turn)
    for (long i = 0; i < kFunctions; ++i) sum += functions[i](turn, "text");
  return (now() - begin) / (double)(turns * kFunctions);
}
static double one(long (*function)(long, long, const char*), long calls) {
  const double begin = now();
  for (long i = 0; i < calls; ++i) sum += function(i, 7, "some text");
  return (now() - begin) / (double)calls;
}
int main(int argc, char** argv) {
  const long turns = atol(argv[argc - 1]);
  if (strcmp(argv[1], "off") == 0) return printf("%%f %%f %%f\n", all(turns), one(plain, turns * 1000), one(tested, turns * 1000)), 0;
  return printf("%%f\n", one(strcmp(argv[1], "marked") == 0 ? marked : plain, turns)), 0;
}
"""
FUNCTION = """__attribute__((noinline)) long f%d(long n, const char* text) {
  UPROBE_MARK(bench, m%d, "n=%%ld text=%%s", n, text);
  return n * %d + (long)(text != 0);
}"""


def build(folder, places):
    source = os.path.join(folder, "subject.c")
    with open(source, "w", encoding="ascii") as file:
        file.write(SOURCE % {"functions": "\n".join(FUNCTION % (i, i, i + 3) for i in range(places)),
                             "names": ", ".join(f"f{i}" for i in range(places))})
    programs = {}
    for name, words in (("with", []), ("without", ["-DUPROBE_MARK_NONE"])):
        programs[name] = os.path.join(folder, name)
        subprocess.run(["cc", "-O2", *words, "-I", os.path.join(ROOT, "library"), "-o", programs[name], source], check=True)
    return programs


def sizes(program):
    """Bytes of the sections, and of the file."""
    told = subprocess.check_output(["size", "-A", "-d", program], text=True)
    found = {words[0]: int(words[1]) for words in (line.split() for line in told.splitlines()) if len(words) == 3 and words[1].isdigit()}
    return {**found, "file": os.path.getsize(program)}


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} failed: {done.stderr}")
    return [float(word) for word in done.stdout.split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=3000)
    parser.add_argument("--hits", type=int, default=300000)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--tool", default=os.path.join(ROOT, "build", "uprobe-run"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        programs = build(folder, options.places)
        program = programs["with"]
        traced = [options.tool, "-q", "-o", "/dev/null"]
        off, on = {"with": [], "without": []}, {"marked": [], "plain": []}
        probes = {"marked": "mark:bench:marked", "plain": f"p:plain {program}:plain a=%di:s64 b=%si:s64 text=+0(%dx):string"}
        for _ in range(options.repetitions):
            for name in off:
                off[name].append(run(programs[name], "off", str(options.turns)))
            for name in on:
                on[name] += run(*traced, "-p", probes[name], "--", program, name, str(options.hits))
        columns = {name: [statistics.median(values) for values in zip(*rows)] for name, rows in off.items()}
        hits = {name: statistics.median(values) for name, values in on.items()}
        place = columns["with"][0] - columns["without"][0]
        test = columns["with"][2] - columns["without"][2]
        size = {name: sizes(path) for name, path in programs.items()}
        grown = lambda section: (size["with"].get(section, 0) - size["without"].get(section, 0)) / options.places
        print(f"{options.places} places, medians of {options.repetitions} interleaved repetitions, CPU time")
        print(f"call of a function, {options.places} in turn, without a mark {columns['without'][0]:8.2f} ns")
        print(f"the same with a mark that is off                  {columns['with'][0]:8.2f} ns   x {columns['with'][0] / columns['without'][0]:.3f}")
        print(f"  a place that is off                             {place:8.2f} ns   <= 0.50 ns   {'PASS' if place <= 0.5 else 'miss'}")
        print(f"  a test whether a mark is on, which is off       {test:8.2f} ns")
        print(f"bytes of a place: code {grown('.text'):.1f}, constants {grown('.rodata'):.1f}, notes (not loaded) "
              f"{grown('.note.stapsdt') + grown('.note.uprobe'):.1f}, of the file {grown('file'):.1f}")
        ratio = hits["marked"] / hits["plain"]
        print(f"a hit of a probe on a function, 2 numbers, a string {hits['plain']:6.1f} ns")
        print(f"a hit of a mark with the same values               {hits['marked']:7.1f} ns   x {ratio:.2f} <= 1.30     {'PASS' if ratio <= 1.3 else 'miss'}")


if __name__ == "__main__":
    main()
