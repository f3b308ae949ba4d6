#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What it costs to start one program under the tool, over an untraced start.

    scripts/bench starts [--times N] [--tool FILE]

/bin/true with one probe on its own entry point, and on open64 of libc; node with one on main, if it is installed, also with --dry-run;
/bin/true under strace with no system call chosen. Each is started in turn with its untraced start. The rows: milliseconds of wall time
and of processor time (tool and program) over the untraced start, medians, beside the aim for the wall time.
"""
import argparse
import os
import shutil
import statistics
import struct
import subprocess

import exec as execs

TRUE, NODE = "/bin/true", shutil.which("node")


def entry_offset(path):
    """Where the file has the first instruction that the program executes of its own."""
    with open(path, "rb") as file:
        data = file.read()
    entry, headers = struct.unpack_from("<QQ", data, 24)
    size, count = struct.unpack_from("<HH", data, 54)
    for i in range(count):
        kind, _, offset, address, _, in_file = struct.unpack_from("<IIQQQQ", data, headers + i * size)
        if kind == 1 and address <= entry < address + in_file:
            return entry - address + offset
    raise ValueError(f"{path}: no entry point")


def rows_for(tool):
    """Name, command, untraced command, aim in milliseconds."""
    traced = [tool, "-q", "-o", "/dev/null", "-p"]
    rows = [("/bin/true", [*traced, f"p:f {TRUE}:{entry_offset(TRUE):#x}", "--", TRUE], [TRUE], 10),
            ("/bin/true, libc", [*traced, f"p:f {execs.libc()}:open64", "--", TRUE], [TRUE], 12)]
    if NODE:
        node = os.path.realpath(NODE)
        rows += [("node", [*traced, f"p:f {node}:main", "--", node, "-e", "0"], [node, "-e", "0"], 40),
                 ("node, --dry-run", [tool, "--dry-run", "-p", f"p:f {node}:main", "--", node], [TRUE], 40)]
    if shutil.which("strace"):
        rows.append(("strace /bin/true", ["strace", "-e", "trace=none", "-o", "/dev/null", TRUE], [TRUE], None))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--tool", default=os.path.join(execs.ROOT, "build", "uprobe-run"))
    options = parser.parse_args()
    print(f"{options.times} starts in turn; milliseconds over the untraced start, medians")
    print(f"{'':<18}{'wall':>8}{'CPU':>8}{'aim':>6}")
    for name, command, plain, aim in rows_for(options.tool):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # files are in memory now
        pairs = [(execs.measured(command, 1), execs.measured(plain, 1)) for _ in range(options.times)]
        wall, cpu = (statistics.median(traced[i] - untraced[i] for traced, untraced in pairs) for i in (0, 1))
        print(f"{name:<18}{wall:>8.1f}{cpu:>8.1f}{aim or '':>6}")


if __name__ == "__main__":
    main()
