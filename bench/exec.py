#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What it costs to follow a shell that starts one program after the other.

    scripts/bench exec [--times N] [--programs N] [--tool FILE]

A loop of bash starts /bin/true again and again: untraced, under the tool with open64 of libc probed, and, where it is installed, under
strace -f with no system call chosen; in turn. The rows: milliseconds of wall time and of processor time (tool and programs) for each
program, medians; the tool's own start is in them, divided by the number of programs.
"""
import argparse
import os
import re
import shutil
import statistics
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def libc():
    listing = subprocess.check_output(["ldd", "/bin/true"], text=True)
    return os.path.realpath(re.search(r"(/\S*/libc\.so\.6)", listing)[1])


def measured(command, programs):
    before, begin = os.times(), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, after = time.monotonic() - begin, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return 1000 * wall / programs, 1000 * cpu / programs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--tool", default=os.path.join(ROOT, "build", "uprobe-run"))
    options = parser.parse_args()
    loop = ["bash", "-c", f"for i in {{1..{options.programs}}}; do /bin/true; done"]
    rows = {"untraced": loop,
            "uprobe-run": [options.tool, "-o", "/dev/null", "-p", f"p:open {libc()}:open64 file=+0(%di):string", *loop]}
    if shutil.which("strace"):
        rows["strace -f"] = ["strace", "-f", "-e", "trace=none", "-o", "/dev/null", *loop]
    seen = {name: [] for name in rows}
    for _ in range(options.times):
        for name, command in rows.items():
            seen[name].append(measured(command, options.programs))
    print(f"{options.programs} programs, {options.times} times; milliseconds a program, medians")
    print(f"{'':<12}{'wall':>8}{'CPU':>8}{'x wall':>8}")
    plain = statistics.median(wall for wall, _ in seen["untraced"])
    for name, times in seen.items():
        wall, cpu = (statistics.median(one) for one in zip(*times))
        print(f"{name:<12}{wall:>8.2f}{cpu:>8.2f}{wall / plain:>8.1f}")


if __name__ == "__main__":
    main()
