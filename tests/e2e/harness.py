# SPDX-License-Identifier: MIT
"""Shared by all end-to-end tests: running a command under the tool, reading trace text, the main function.

A test file ends with `harness.main()`. ctest passes the places of what was built; by hand:
    python3 tests/e2e/behaviour_test.py --tool build/uprobe-run --fixtures build/tests/e2e/fixtures [--tier TIER] [-k NAME]
"""
import argparse
import collections
import contextlib
import ctypes
import hashlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from dataclasses import dataclass, field

from elf_reader import Elf

SKIPPED = 77  # what ctest takes for "not run here"
LONG = bool(os.environ.get("UPROBE_TEST_LONG"))  # scripts/test --full: loops are as long as they can be


def some_of(number):
    """Of so many turns of a loop: all in a long run, else an eighth."""
    return number if LONG else (number + 7) // 8


def share_of(items):
    """All of a long run; else a third, of which each tier has another one, for what other tests do at once as well."""
    return items if LONG else items[1 if Options.tier == "int3" else 0::3]


TIMEOUT = 180  # seconds until a command counts as hanging: crowded machines are slow
UNPRIVILEGED = 65534  # a user and a group
ADDR_NO_RANDOMIZE = 0x0040000

# "   task name-123   [001] DBZff  1370.652542: event: (0x55d0) a=1"; the task name may hold anything
RECORD = re.compile(r" *(?P<task>.{1,16})-(?P<tid>\d+) +\[(?P<cpu>\d+)\] (?P<flags>.{5}) +(?P<time>\d+\.\d{6}): "
                    r"(?P<event>[^:\s]+): (?P<rest>\(0x[0-9a-f]+(?: <- 0x[0-9a-f]+)?\).*)")
EVENT = re.compile(r"^ *.{1,16}-\d+ +\[\d+\] .{5} +\d+\.\d{6}: ([^:\s]+): \(0x[0-9a-f]", re.MULTILINE)


def become(user=UNPRIVILEGED):
    """In a child of root before exec: it is the user from now on, in the group of the same number."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


@dataclass
class Hit:
    task: str
    tid: int
    cpu: int
    flags: str
    time: float
    event: str
    rest: str  # "(0xIP) name=value ...", may hold newlines

    @property
    def address(self):
        return int(re.match(r"\(0x([0-9a-f]+)", self.rest)[1], 16)

    @property
    def arguments(self):
        return self.rest[self.rest.index(")") + 1:].lstrip(" ")


@dataclass
class Observation:
    """The result of a command: streams as bytes, the trace's text, and the hits in its order."""
    returncode: int
    stdout: bytes
    stderr: bytes
    text: str = ""
    profile: dict = field(default_factory=dict)  # event -> hits, where the source counts them
    parsed: list = None  # the hits, read from the text when they are asked for

    @property
    def hits(self):
        if self.parsed is None:
            self.parsed = parse_trace(self.text)
        return self.parsed

    @hits.setter
    def hits(self, hits):
        self.parsed = hits

    def counts(self):
        if self.parsed is None:
            return dict(collections.Counter(EVENT.findall(self.text)))
        return dict(collections.Counter(hit.event for hit in self.parsed))


def json_hits(text):
    """The hits of JSON lines, without what else they tell."""
    return [one for one in map(json.loads, text.splitlines()) if "type" not in one]


def parse_trace(text):
    """The hits of a trace text. A line that does not open a record belongs to the record before it."""
    hits = []
    for line in text.split("\n"):
        match = RECORD.fullmatch(line)
        if match:
            hits.append(Hit(match["task"].strip(), int(match["tid"]), int(match["cpu"]), match["flags"],
                            float(match["time"]), match["event"], match["rest"]))
        elif hits and line != "":
            hits[-1].rest += "\n" + line
    return hits


class Options:
    """The places of the built files; the tier of every probe and the mode of returns, None: the tool's default; filled in by
    main()."""
    tool = fixtures = source = tier = returns = None


def fixture(name):
    path = os.path.join(Options.fixtures or "", name)
    if not Options.fixtures or not os.path.exists(path):
        raise unittest.SkipTest(f"fixture {name} was not built here")
    return path


def tool():
    if not Options.tool or not os.path.exists(Options.tool):
        raise unittest.SkipTest("uprobe-run is not built")
    return Options.tool


def tracer(*options):
    """The tool with the tier and the way to returns that the test runs in, as the beginning of a command."""
    ways = [f"--{name}={value}" for name, value in (("tier", Options.tier), ("return", Options.returns)) if value]
    return [tool(), *ways, *options]


def preloaded(**variables):
    """The environment's part of tracing by LD_PRELOAD, in that tier and way."""
    library = os.path.join(os.path.dirname(tool()), "libuprobe.so")
    if not os.path.exists(library):
        raise unittest.SkipTest("libuprobe.so is not built")
    ways = {name: value for name, value in (("UPROBE_TIER", Options.tier), ("UPROBE_RETURN", Options.returns)) if value}
    return {"LD_PRELOAD": library, **ways, **variables}


def need(program):
    path = shutil.which(program)
    if not path:
        raise unittest.SkipTest(f"{program} is not installed")
    return os.path.realpath(path)


def libc_of(program):
    listing = subprocess.check_output(["ldd", program], text=True)
    return os.path.realpath(re.search(r"(/\S*/libc\.so\.6)", listing)[1])


def fixed_layout():
    """In the child before exec: no address randomisation, so that two runs can be compared address by address."""
    ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)


def run(command, stdin=b"", env=None, timeout=TIMEOUT, before_exec=None, cwd=None):
    """Runs a command to its end in a process group of its own; a command that hangs is killed and fails the test."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
                               cwd=cwd, start_new_session=True, preexec_fn=before_exec)
    try:
        out, err = process.communicate(stdin, timeout)
    except subprocess.TimeoutExpired:
        stop_group(process)
        raise AssertionError(f"no end after {timeout} s: {command}") from None
    return Observation(process.returncode, out, err)


def stop_group(process):
    """Kills the processes that a test has started, children included. The number of a group that has no member left may be another
    process's by now, where tests begin threads by the thousand; a group that has members keeps its number, and has no new leader.
    """
    if process.poll() is None or not os.path.exists(f"/proc/{process.pid}"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            with contextlib.suppress(BrokenPipeError):  # of a line that the process did not live to read
                stream.close()


def run_tool(definitions, command, options=(), stdin=b"", env=None, randomise=True, timeout=TIMEOUT):
    """Runs a command under uprobe-run with the trace in a file, and reads it back."""
    with tempfile.TemporaryDirectory(prefix="uprobe-e2e.") as folder:
        output = os.path.join(folder, "trace")
        words = tracer("-o", output, *options)
        for definition in definitions:
            words += ["-p", definition]
        seen = run([*words, "--", *command], stdin, env, timeout, None if randomise else fixed_layout)
        if os.path.exists(output):
            with open(output, encoding="latin-1", newline="") as file:
                seen.text = file.read()
    return seen


def kernel_definition(definition, cache={}):
    """PATH:SYMBOL[+OFF] as PATH:OFFSET, the only form that the kernel takes."""
    head, place, *arguments = definition.split(" ")
    path, _, where = place.rpartition(":")
    match = re.fullmatch(r"([A-Za-z_.][\w.@]*)(?:\+(\w+))?(%return)?", where)
    if match:
        if path not in cache:
            cache[path] = Elf(path)
        place = f"{path}:{cache[path].offset_of(match[1]) + int(match[2] or '0', 0):#x}{match[3] or ''}"
    return " ".join([head, place, *arguments])


def wait_until(condition, what, seconds=60):
    """Polls for an action of another process; only its absence fails, never its duration."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s in vain for {what}")
        time.sleep(0.01)


def name_of(pid):
    """Empty: it has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="latin-1") as file:
        return file.read().rstrip("\n")
    return ""


def stop(pid):
    """Until then a thread may go on which the kernel has not put on a processor since the signal."""
    os.kill(pid, signal.SIGSTOP)

    def is_stopped():
        for task in _listing(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/stat", encoding="latin-1") as file:
                if file.read().rpartition(") ")[2][0] not in "TZ":
                    return False
        return True
    wait_until(is_stopped, "its threads to be stopped")


def descendants(pid):
    result = []
    for task in _listing(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                children = [int(word) for word in file.read().split()]
        except OSError:
            continue
        for child in children:
            result += [child, *descendants(child)]
    return result


def _listing(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []


def copied(program, path):
    """A copy that can be executed at once: no child that another thread forks during the copy has it open for writing."""
    subprocess.run(["cp", "--preserve=mode", program, path], check=True)
    return path


def compiled(command, program):
    """Runs a compiler's command (all paths of sources whole), or takes the earlier result of the same command on the same sources."""
    folder = os.path.join(Options.fixtures or "/nowhere", "compiled")
    known = hashlib.sha256(repr(command).encode())
    for word in command:
        if os.path.isfile(word) and os.path.isabs(word):
            with open(word, "rb") as file:
                known.update(file.read())
    kept = os.path.join(folder, known.hexdigest())
    if not os.path.exists(kept):
        subprocess.run([*command, "-o", program], check=True, capture_output=True)
        if Options.fixtures:
            os.makedirs(folder, exist_ok=True)
            os.replace(copied(program, f"{kept}.{os.getpid()}"), kept)
        return program
    return copied(kept, program)


def change_abi(library):
    """Gives a copy of the agent another ABI version; returns the tool's answer."""
    place = Elf(library).offset_of("uprobe_agent") + struct.calcsize("<Q")
    with open(library, "r+b") as file:
        file.seek(place)
        version, = struct.unpack("<I", file.read(4))
        file.seek(place)
        file.write(struct.pack("<I", version + 1))
    return f"the agent has ABI version {version + 1} and uprobe-run has {version}: install both from the same build"


class TestCase(unittest.TestCase):
    """Adds a folder of its own to each test and messages of full length."""
    maxDiff = 4000

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="uprobe-e2e.")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text, mode=0o644):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def copy_of(self, program):
        """A copy with an inode of its own: probes of others on the original do not affect the test."""
        return copied(program, os.path.join(self.folder, os.path.basename(program)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool")
    parser.add_argument("--fixtures")
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--tier", choices=("int3", "auto", "jump"))
    parser.add_argument("--source", default=os.path.join(here, "../.."))
    known, rest = parser.parse_known_args()
    Options.tool = known.tool and os.path.abspath(known.tool)
    Options.fixtures = known.fixtures and os.path.abspath(known.fixtures)
    Options.tier = known.tier
    Options.source = os.path.abspath(known.source)
    # the only exception that unittest lets through at once: `with` blocks clean up, the rest is done below
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        result = unittest.main(argv=[sys.argv[0], "-v", *rest], exit=False, module="__main__").result
    except KeyboardInterrupt:
        for pid in descendants(os.getpid()):
            os.kill(pid, signal.SIGKILL)
        sys.exit(128 + signal.SIGTERM)
    if not result.wasSuccessful():
        sys.exit(1)
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}", file=sys.stderr)
    # a class that is skipped as a whole is in `skipped` without having been counted as run
    sys.exit(SKIPPED if result.testsRun <= len(result.skipped) else 0)
