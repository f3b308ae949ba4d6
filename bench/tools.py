#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What it costs to count and time all calls of a library's functions, by -c and by other tools, for the same job.

    scripts/bench tools [--rows N] [--repetitions N]

The job: sqlite3 fills a table and joins it with itself. What is traced: each sqlite3_* function that its library exports, at entry and
return. The tools, those that are there: `uprobe-run -c`, `perf stat` and `perf record` with the kernel's uprobes (root), and uftrace
(the calls that go through the PLT). Each is run in turn with the untraced job. The table has the medians of the CPU time of program
and tool together; the run fails where -c and `perf stat` have not counted the same calls of each function.

Nothing is left over: the kernel's events are in a group of this script's, and are removed.
"""
import argparse
import json
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOOL = os.path.join(ROOT, "build", "uprobe-run")
TRACEFS = "/sys/kernel/tracing"
GROUP = f"uprobe_bench_tools_{os.getpid()}"
SQL = """create table t(a integer primary key, b integer, c text);
begin;
{inserts}
commit;
select count(*) from t x join t y on x.b = y.a;
"""


class Failure(Exception):
    pass


def script_of(rows):
    inserts = "\n".join(f"insert into t values({i}, {(i * 7919) % rows}, 'row {i}');" for i in range(rows))
    return SQL.format(inserts=inserts)


def library_of(program):
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    found = re.search(r"=> (\S*/libsqlite3\.so\S*)", listing)
    if not found:
        raise Failure(f"{program} is not linked with libsqlite3.so")
    return os.path.realpath(found[1])


def functions_of(library):
    """Names and file offsets of the functions that it exports."""
    segments = []
    for line in subprocess.run(["readelf", "-lW", library], capture_output=True, text=True, check=True).stdout.splitlines():
        words = line.split()
        if words[:1] == ["LOAD"]:
            segments.append(tuple(int(word, 16) for word in words[1:3] + words[4:5]))
    offsets = {}
    for line in subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout.splitlines():
        address, kind, name = line.split()
        if kind == "T" and name.startswith("sqlite3_"):
            at = int(address, 16)
            offsets[name] = next(at - begin + offset for offset, begin, size in segments if begin <= at < begin + size)
    return offsets


def tell_kernel(line):
    # Not by open(..., "a"), which seeks.
    events = os.open(f"{TRACEFS}/uprobe_events", os.O_WRONLY | os.O_APPEND)
    try:
        os.write(events, (line + "\n").encode())
    finally:
        os.close(events)


class Kernel:
    """The kernel's events for the functions, as long as it is open."""

    def __init__(self, library, offsets):
        self.lines = [f"{kind}:{GROUP}/{kind}_{name} {library}:{offset:#x}" for name, offset in offsets.items() for kind in "pr"]

    def __enter__(self):
        try:
            for line in self.lines:
                tell_kernel(line)
        except OSError as error:
            self.__exit__()
            raise Failure(f"the kernel takes no event: {line}: {error}") from error

    def __exit__(self, *_):
        names = sorted(os.listdir(f"{TRACEFS}/events/{GROUP}")) if os.path.isdir(f"{TRACEFS}/events/{GROUP}") else []
        for name in names:
            if os.path.isdir(f"{TRACEFS}/events/{GROUP}/{name}"):
                tell_kernel(f"-:{GROUP}/{name}")


class Bench:
    def __init__(self, options, folder):
        self.folder, self.program = folder, shutil.which("sqlite3") or sys.exit("sqlite3 is not installed")
        self.library = library_of(self.program)
        self.offsets = functions_of(self.library)
        self.script = os.path.join(folder, "job.sql")
        with open(self.script, "w", encoding="ascii") as file:
            file.write(script_of(options.rows))

    def run(self, *words):
        """The job after these words; CPU seconds of all of it."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with open(self.script, "rb") as script:
            done = subprocess.run([*words, self.program, "-batch", ":memory:"], stdin=script, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0 or not done.stdout.strip().isdigit():
            raise Failure(f"{words[:1]}: {done.stderr.decode(errors='replace')[-500:]}")
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def path(self, name):
        return os.path.join(self.folder, name)

    def untraced(self):
        return self.run(), None

    def summed(self):
        # As they are in the table, and no pattern: both tools get the same functions.
        probes = [word for name in self.offsets for word in ("-p", f"p:{name} {self.library}:{name}")]
        seconds = self.run(TOOL, "-c", "-q", "--json", "--summary-file", self.path("sums"), *probes, "--")
        with open(self.path("sums"), encoding="utf-8") as file:
            return seconds, {row["event"]: row["calls"] for row in json.load(file) if row["calls"] != 0}

    def perf_stat(self):
        seconds = self.run("perf", "stat", "-x,", "-o", self.path("stat"), "-e", f"{GROUP}:*", "--")
        counts = {}
        with open(self.path("stat"), encoding="utf-8") as file:
            for line in file:
                words = line.strip().split(",")
                if len(words) > 2 and words[2].startswith(f"{GROUP}:p_") and words[0].isdigit() and int(words[0]) != 0:
                    counts[words[2][len(GROUP) + 3:]] = int(words[0])
        return seconds, counts

    def perf_record(self):
        return self.run("perf", "record", "-q", "-m", "4096", "-o", self.path("perf.data"), "-e", f"{GROUP}:*", "--"), None

    def uftrace(self):
        folder = self.path("uftrace.data")
        shutil.rmtree(folder, ignore_errors=True)
        seconds = self.run("uftrace", "record", "--force", "-d", folder, "--no-event")
        report = subprocess.run(["uftrace", "report", "-d", folder, "--no-pager"], capture_output=True, text=True, check=False).stdout
        counts = {}
        for line in report.splitlines():
            words = line.split()
            if words and words[-1].startswith("sqlite3_"):
                counts[words[-1]] = int(words[-2])
        return seconds, counts

    def tools(self):
        yield "untraced", self.untraced
        yield "uprobe-run -c", self.summed
        if shutil.which("perf") and os.path.exists(f"{TRACEFS}/uprobe_events"):
            yield "perf stat", self.perf_stat
            yield "perf record", self.perf_record
        if shutil.which("uftrace"):
            yield "uftrace record", self.uftrace


def measure(bench, repetitions):
    seconds, calls = {}, {}
    for _ in range(repetitions):
        for name, run in bench.tools():
            if name.startswith("perf"):
                with Kernel(bench.library, bench.offsets):
                    spent, counted = run()
            else:
                spent, counted = run()
            seconds.setdefault(name, []).append(spent)
            if counted is not None and calls.setdefault(name, counted) != counted:
                raise Failure(f"{name} counts otherwise each time")
    return {name: statistics.median(all_of) for name, all_of in seconds.items()}, calls


def show(seconds, calls):
    base, ours = seconds["untraced"], calls["uprobe-run -c"]
    total = sum(ours.values())
    print(f"{len(ours)} functions, {total:,} calls")
    print(f"{'':16} {'CPU s':>8} {'ns a call':>10}  calls")
    for name, spent in seconds.items():
        seen = calls.get(name)
        what = "" if seen is None else f"{sum(seen.values()):,}" + ("" if seen == ours else " (not the same)")
        cost = "" if name == "untraced" else f"{(spent - base) / total * 1e9:,.0f}"
        print(f"{name:16} {spent:8.3f} {cost:>10}  {what}")
    if calls.get("perf stat", ours) != ours:
        differing = {name for name in ours | calls["perf stat"] if ours.get(name) != calls["perf stat"].get(name)}
        raise Failure(f"-c and perf stat have counted different calls: {sorted(differing)[:10]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the events go, too
    with tempfile.TemporaryDirectory(prefix="uprobe-bench-tools.") as folder:
        try:
            show(*measure(Bench(options, folder), options.repetitions))
        except Failure as failure:
            sys.exit(f"bench/tools.py: {failure}")


if __name__ == "__main__":
    main()
