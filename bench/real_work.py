# SPDX-License-Identifier: MIT
"""The cost of probes in programs at work: each job untraced, under uprobe-run and under the kernel's uprobes, in turn, in one run.

    scripts/bench real [--quick] [--repetitions N] [--tool-options='-b 64M'] [--output FILE] [PATTERN]

--quick: less than a minute, and rough; PATTERN: of the jobs' names; --output: where uprobe-run writes (/dev/null). `recording`: with --record, in place of text.

A ratio is to the untraced run of the same round; the table has the medians over the rounds. Every hit has to be recorded or
counted as lost: if a job knows their number (a server its commands, dbench its operations, make its programs, the kernel the
allocations of a compiler), another number in uprobe-run's summary, or in the kernel's profile, fails the run.

CPU x: CPU time of the traced processes for the same work, against untraced. reader: uprobe-run's own, of one CPU. hits: of a run.

Nothing is left over: processes, files and the kernel's events are removed however the run ends; the next run removes what SIGKILL
leaves.
"""
import argparse
import ctypes
import os
import random
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
import harness  # noqa: E402
import oracle  # noqa: E402
from real_jobs import JOBS, Failure  # noqa: E402

TOOL = os.path.join(ROOT, "build", "uprobe-run")
LIMIT = 300  # seconds until a run counts as hanging
KERNEL_BUFFER_KB = 4096  # of each CPU: the size of the tool's rings
SUBREAPER, PARENT_DIES = 36, 1  # PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG
PREFIX = "uprobe-bench-real."
TICKS = os.sysconf("SC_CLK_TCK")
COLUMNS = "{:30} {:16} {:>7} {:>6} {:>8} {:5} {:>7} {:>8} {:>12} {:>7}"
HEADS = ("", "", "ratio", "+-", "aim", "", "CPU x", "reader", "hits", "lost")


def control(option, value):
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def end_with_us():
    control(PARENT_DIES, signal.SIGTERM)


class Run:
    """A running command, with uprobe-run before it or without."""

    def __init__(self, command, environment, folder, traced):
        self.expected, self.traced = {}, traced
        self.out = open(os.path.join(folder, "stdout"), "wb+")
        self.err = open(os.path.join(folder, "stderr"), "wb+")
        self.begun = time.monotonic()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err, env=environment,
                                        cwd=folder, start_new_session=True,
                                        preexec_fn=end_with_us)

    def wait_for(self, condition, what):
        deadline = time.monotonic() + 20
        while not condition():
            if time.monotonic() > deadline or self.ended():
                raise Failure(f"waited in vain for {what}: {self.text(self.err)[-300:]}")
            time.sleep(0.02)

    @staticmethod
    def ask(command):
        """Runs another program to its end; returns its output."""
        return subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=end_with_us).stdout

    def ended(self):
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def finish(self):
        """Waits for the end; returns the output."""
        signal.alarm(LIMIT)
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        self.seconds = time.monotonic() - self.begun
        own = own_cpu_seconds(self.process.pid)  # while it is a zombie
        _, status, usage = os.wait4(self.process.pid, 0)
        signal.alarm(0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        every = usage.ru_utime + usage.ru_stime
        self.tool_cpu, self.target_cpu = (own, every - own) if self.traced else (0, every)
        out, self.summary = self.text(self.out), self.text(self.err)
        self.out.close()
        self.err.close()
        if self.process.returncode != 0:
            raise Failure(f"ended with {self.process.returncode}: {self.summary[-500:]}{out[-200:]}")
        return out

    @staticmethod
    def text(file):
        file.seek(0)
        return file.read().decode("latin-1")


def own_cpu_seconds(pid):
    """CPU time of the process alone, without its children's. Fields 14 and 15 of stat; the name may hold spaces."""
    with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Way:
    """One way of tracing. `folder` has the copies of the probed files."""

    def __init__(self, name, folder, rounds):
        self.name, self.folder, self.rounds = name, folder, rounds
        os.mkdir(folder)
        self.scores, self.cpu, self.reader, self.hits, self.lost = {}, {}, [], [], []

    def begin(self, definitions):
        """Before the first run."""

    def end(self):
        """After the last one, on every way out."""

    def start(self, command, environment):
        return Run(command, environment, self.folder, traced=False)

    def count(self, run):
        """event -> (hits, lost), of the finished run. None if neither kernel nor tool counts."""


class Ours(Way):
    def __init__(self, name, folder, rounds, tier, options, output, writes="-o"):
        super().__init__(name, folder, rounds)
        self.writes = writes  # the option that takes `output`
        self.tier = tier  # None: this uprobe-run has one only
        self.options, self.output, self.listed = options, output, os.path.join(folder, "definitions")

    def begin(self, definitions):
        self.events = [one.split(" ")[0][2:] for one in definitions]
        with open(self.listed, "w", encoding="utf-8") as out:
            out.write("\n".join(definitions) + "\n")
        if self.tier:
            self.check_tier()

    def check_tier(self):
        shown = subprocess.run([TOOL, *self.options, "--dry-run", "-i", self.listed], capture_output=True, text=True, check=True)
        tiers = re.findall(r"^ *tier +(\w+)", shown.stdout, re.MULTILINE)
        if tiers != [self.tier] * len(self.events):
            raise Failure(f"not all probes are by {self.tier}: {tiers}")

    def start(self, command, environment):
        front = [TOOL, "-v", "--color=never", *self.options, "-i", self.listed, self.writes, self.output, "--"]
        return Run(front + command, environment, self.folder, traced=True)

    def count(self, run):
        found = {}
        for event, hits, rest in re.findall(r"^uprobe-run: uprobes/(\S+) .*: ([\d,]+) hits?(.*)$", run.summary, re.MULTILINE):
            lost = re.search(r"lost ([\d,]+)", rest)
            if "(" in rest and not lost and "never reached" not in rest:
                raise Failure(f"{event} is not armed:{rest}")
            found[event] = (number(hits), number(lost[1]) if lost else 0)
        if sorted(found) != sorted(self.events):
            raise Failure(f"the summary is not whole: {run.summary[-500:]}")
        return found


class Kernel(Way):
    kernel = None

    def begin(self, definitions):
        self.kernel = oracle.Oracle(definitions, buffer_kb=KERNEL_BUFFER_KB, everybody=True)
        self.kernel.__enter__()
        self.before = self.kernel.read_profile()

    def end(self):
        if self.kernel:
            self.kernel.__exit__()
        self.kernel = None

    def count(self, run):
        now, before = self.kernel.read_profile(), self.before
        self.before = now
        return {event: (hits - before.get(event, 0), 0) for event, hits in now.items()}


def number(text):
    return int(text.replace(",", ""))


def check(job, way, run, counted):
    """Compares the job's own numbers, or without those the kernel's, with the summary."""
    for event, (hits, _) in counted.items():
        expected = run.expected.get(event)
        if expected is not None and expected != hits:
            raise Failure(f"{job.name}, {way.name}: {expected:,} calls of {event}, {hits:,} hits")


def check_between(job, ways):
    """If the job itself counts nothing, every traced run has to have the same hits."""
    exact = [counted for way in ways for counted in way.hits]
    if any(run.expected for way in ways for run in way.runs) or len(exact) < 2:
        return
    for way in ways:
        for counted in way.hits:
            if counted != exact[0]:
                raise Failure(f"{job.name}: hits {counted} under {way.name}, {exact[0]} under another")


def measure(job, ways, options):
    traced = [way for way in ways if not type(way) is Way]
    try:
        for way in ways:
            job.prepare(way.folder)
            way.runs, way.scores, way.hits, way.lost = [], {}, [], []
            way.begin(job.definitions(way.folder))
        for turn in range(-1, options.repetitions):
            order = [way for way in ways if turn < way.rounds]
            if turn < 0:  # fills the page cache
                order = ways[:1]
            for way in random.sample(order, len(order)):
                score, run = job.run(way.folder, way.start, options.seconds)
                if turn < 0:
                    continue
                way.scores[turn] = score
                way.runs.append(run)
                counted = way.count(run)
                if counted is None:
                    continue
                check(job, way, run, counted)
                way.hits.append({event: hits for event, (hits, _) in counted.items()})
                way.lost.append(sum(lost for _, lost in counted.values()))
        check_between(job, traced)
    finally:
        for way in ways:
            way.end()


def median(values):
    return statistics.median(values)


def show(job, ways):
    plain = ways[0]
    base_cpu = median([run.target_cpu / work(job, score) for run, score in zip(plain.runs, plain.scores.values())])
    for way in ways[1:]:
        ratios = [score / plain.scores[turn] for turn, score in way.scores.items()]
        ratio = median(ratios)
        spread = f"{100 * statistics.pstdev(ratios) / ratio:.0f}%" if len(ratios) > 1 else ""
        aim, met = "", ""
        if isinstance(way, Ours):
            aim = (">= {:.2f}" if job.more_is_better else "<= {:.2f}").format(job.aim_ratio)
            met = "PASS" if (ratio >= job.aim_ratio if job.more_is_better else ratio <= job.aim_ratio) else "miss"
        cpu = median([run.target_cpu / work(job, score) for run, score in zip(way.runs, way.scores.values())]) / base_cpu
        reader = f"{100 * median([run.tool_cpu / run.seconds for run in way.runs]):.0f}%" if isinstance(way, Ours) else ""
        hits = [sum(one.values()) for one in way.hits]
        lost = f"{100 * sum(way.lost) / max(1, sum(hits)):.2f}%" if isinstance(way, Ours) else ""
        print(COLUMNS.format(job.name if way is ways[1] else "", way.name, f"{ratio:.3f}", spread, aim, met, f"{cpu:.2f}", reader,
                             f"{int(median(hits)):,}", lost).rstrip(), flush=True)


def work(job, score):
    """The divisor of CPU time: the work done in a fixed time, or the job as a whole."""
    return 1 if job.is_fixed_work else score


def has_tiers():
    return "--tier" in subprocess.run([TOOL, "--help"], capture_output=True, text=True, check=True).stdout


def make_ways(folder, options):
    """The folders' names have the same length: some programs allocate by the length of paths."""
    peers = 1 if options.quick else options.repetitions
    extra = shlex.split(options.tool_options)

    def path(name):
        return os.path.join(folder, name)

    def ours(tier, short, rounds, name="uprobe-run", writes="-o"):
        return Ours(f"{name} {tier}", path(short), rounds, tier, [f"--tier={tier}", *extra], options.output, writes)

    ways = [Way("untraced", path("a"), options.repetitions)]
    if has_tiers():
        ways.append(ours("jump", "b", options.repetitions))
        ways.append(ours("jump", "e", options.repetitions, "recording", "--record"))
        ways.append(ours("int3", "c", peers))
    else:
        ways.append(Ours("uprobe-run int3", path("c"), options.repetitions, None, extra, options.output))
    reason = oracle.available()
    if reason:
        print(f"no kernel uprobes: {reason}")
    else:
        ways.append(Kernel("kernel uprobes", path("d"), peers))
    return ways


def install(jobs):
    missing = {job.packages for job in jobs if not all(shutil.which(program) for program in job.programs.split())}
    if missing:
        print(f"bench: installing {', '.join(sorted(missing))} for the jobs", file=sys.stderr)
        subprocess.run([os.path.join(ROOT, "scripts", "install-dependencies"), *sorted(missing)], check=True, stdout=sys.stderr)


def machine():
    with open("/proc/cpuinfo", encoding="latin-1") as file:
        model = re.search(r"model name\t: (.*)", file.read())
    return (f"{model[1] if model else 'unknown CPU'}, {os.cpu_count()} CPUs, Linux {os.uname().release}, "
            f"load {os.getloadavg()[0]:.1f} at the start")


def end_everybody():
    """Ends all started processes, also those that a launcher has left behind."""
    for _ in range(100):
        left = [pid for pid in harness.descendants(os.getpid()) if not is_zombie(pid)]
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)


def is_zombie(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def remove_leftovers(base):
    """Folders of runs that were killed."""
    for name in os.listdir(base):
        owner = re.fullmatch(rf"{re.escape(PREFIX)}(\d+)\..*", name)
        if owner and not os.path.exists(f"/proc/{owner[1]}"):
            shutil.rmtree(os.path.join(base, name), ignore_errors=True)


def bench(options):
    jobs = [job for job in JOBS if re.search(options.pattern, job.name)]
    install(jobs)
    # in memory where that is possible: a disk would decide what dbench measures
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
    remove_leftovers(base)
    print(machine())
    print(COLUMNS.format(*HEADS).rstrip())
    for job in jobs:
        with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}.", dir=base) as folder:
            try:
                ways = make_ways(folder, options)
                measure(job, ways, options)
            finally:
                end_everybody()  # before their folder goes
        show(job, ways)


def stop(number, _):
    sys.exit(f"bench: {'a run hangs' if number == signal.SIGALRM else 'stopped by signal ' + str(number)}")


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench real", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--tool-options", default="")
    parser.add_argument("--output", default="/dev/null")
    options = parser.parse_args()
    options.repetitions = options.repetitions or (3 if options.quick else 9)
    options.seconds = 1 if options.quick else 3
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(one, stop)
    control(SUBREAPER, 1)
    try:
        bench(options)
    except (Failure, subprocess.CalledProcessError) as failure:
        sys.exit(f"bench: {failure}")


main()
