# SPDX-License-Identifier: MIT
"""The kernel's own uprobe events as an oracle: the same definitions, the same command, the kernel's output.

Everything happens in a tracing instance and an event group named after this process, is limited to the command's
process tree (set_event_pid with event-fork), and is taken away again on every way out. Tests ask one after another: the
kernel does, too. Nothing is mounted; where tracefs cannot be written the caller skips. By hand:
    python3 oracle.py DEFINITION... -- COMMAND...        (PATH:SYMBOL is resolved here)
"""
import fcntl
import os
import re
import signal
import sys
import unittest

import harness

TRACEFS = os.environ.get("TRACEFS", "/sys/kernel/tracing")
PREFIX = "uprobe_e2e_"
BUFFER_KB = 8192  # of each CPU: a test's records all fit, which read_trace checks


def available():
    """None, or the reason why the kernel cannot be asked here."""
    events = os.path.join(TRACEFS, "uprobe_events")
    if not os.path.exists(events):
        return f"{events} does not exist (tracefs not mounted, or a kernel without uprobe events)"
    if not os.access(events, os.W_OK) or not os.access(os.path.join(TRACEFS, "instances"), os.W_OK):
        return f"{TRACEFS} is not writable"
    return None


def require():
    reason = available()
    if reason:
        raise unittest.SkipTest(reason)


def put(path, text, flags=os.O_WRONLY):
    descriptor = os.open(path, flags)
    try:
        os.write(descriptor, text.encode("latin-1"))
    finally:
        os.close(descriptor)


def events_of(group):
    """The events of a group, in the order of their definition."""
    found = []
    with open(os.path.join(TRACEFS, "uprobe_events"), encoding="latin-1") as file:
        for line in file:
            match = re.match(r"[pr]:(\S+)/(\S+) ", line)
            if match and match[1] == group and match[2] not in found:
                found.append(match[2])
    return found


def remove_group(group):
    """Removes all that belongs to a group; a signal that would interrupt it waits."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    try:
        _remove_group(group)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _remove_group(group):
    instance = os.path.join(TRACEFS, "instances", group)
    for event in reversed(events_of(group)):
        for where in (instance, TRACEFS):
            if os.path.isdir(f"{where}/events/{group}/{event}"):
                put(f"{where}/events/{group}/{event}/enable", "0")
        put(f"{TRACEFS}/uprobe_events", f"-:{group}/{event}\n", os.O_WRONLY | os.O_APPEND)
    if os.path.isdir(instance):
        os.rmdir(instance)


def remove_leftovers():
    """Leftovers of a test that was killed by SIGKILL: groups whose process is gone."""
    with open(os.path.join(TRACEFS, "uprobe_events"), encoding="latin-1") as file:
        groups = set(re.findall(rf":({PREFIX}\d+)/", file.read()))
    groups |= {name for name in os.listdir(f"{TRACEFS}/instances") if name.startswith(PREFIX)}
    for group in groups:
        if not os.path.exists(f"/proc/{group[len(PREFIX):]}"):
            remove_group(group)


class Turn:
    """with oracle.Turn(): no other process asks the kernel in between. May be nested."""
    held, depth = None, 0

    def __enter__(self):
        if Turn.depth == 0:  # a lock on what every test can open, and that ends with the process
            Turn.held = open(f"{TRACEFS}/README", encoding="latin-1")
            fcntl.flock(Turn.held, fcntl.LOCK_EX)
        Turn.depth += 1

    def __exit__(self, *_):
        Turn.depth -= 1
        if Turn.depth == 0:
            Turn.held.close()


class Oracle:
    """with Oracle(definitions) as kernel: ... Definitions name no group of their own: "p:name PATH:PLACE args"."""

    def __init__(self, definitions, buffer_kb=BUFFER_KB, everybody=False):
        """everybody: hits of all processes that run the files, not of one process tree (for files that only the test has)."""
        self.buffer_kb, self.everybody = buffer_kb, everybody
        self.turn = Turn()
        self.group = f"{PREFIX}{os.getpid()}"
        self.instance = f"{TRACEFS}/instances/{self.group}"
        self.definitions = [harness.kernel_definition(one) for one in definitions]

    def __enter__(self):
        self.turn.__enter__()
        try:
            remove_leftovers()
            self._set_up()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_):
        self._end()

    def _end(self):
        try:
            remove_group(self.group)
        finally:
            self.turn.__exit__()

    def _set_up(self):
        os.mkdir(self.instance)
        put(f"{self.instance}/buffer_size_kb", str(self.buffer_kb))
        put(f"{self.instance}/options/event-fork", "1")
        for definition in self.definitions:
            kind, _, rest = definition.partition(":")
            put(f"{TRACEFS}/uprobe_events", f"{kind}:{self.group}/{rest}\n", os.O_WRONLY | os.O_APPEND)
        # kthreadd, which runs no program: without any entry the filter lets everybody's hits in until the command is named
        if not self.everybody:
            put(f"{self.instance}/set_event_pid", "2")
        # oldest first, as the tool arms its definitions: the newest consumer of a place is called first
        for event in events_of(self.group):
            put(f"{self.instance}/events/{self.group}/{event}/enable", "1")

    def follow_this_process(self):
        """In the child before exec: from here on this process and its children are recorded."""
        put(f"{self.instance}/set_event_pid", str(os.getpid()))

    def read_trace(self):
        with open(f"{self.instance}/trace", encoding="latin-1", newline="") as file:
            text = file.read()
        kept, written = re.search(r"entries-in-buffer/entries-written: (\d+)/(\d+)", text).groups()
        if kept != written:
            raise AssertionError(f"the kernel's ring was too small: {kept} of {written} records kept")
        return text

    def read_profile(self):
        """event -> hits; of every process that ran the file, not only of the test's."""
        counts = {}
        names = set(events_of(self.group))
        paths = {definition.split(" ")[1].rpartition(":")[0] for definition in self.definitions}
        with open(f"{TRACEFS}/uprobe_profile", encoding="latin-1") as file:
            for line in file:
                match = re.match(r"  (.*?) +(\S+) +(\d+)$", line)
                if match and match[1] in paths and match[2] in names:
                    counts[match[2]] = counts.get(match[2], 0) + int(match[3])
        return counts


def run_kernel(definitions, command, stdin=b"", env=None, randomise=True, cwd=None):
    """Runs a command under the kernel's uprobe events; as harness.run_tool, profile filled in."""
    require()
    with Oracle(definitions) as kernel:
        def before_exec():
            if not randomise:
                harness.fixed_layout()
            kernel.follow_this_process()
        seen = harness.run(command, stdin, env, before_exec=before_exec, cwd=cwd)
        seen.text = kernel.read_trace()
        seen.profile = kernel.read_profile()
    return seen


def by_hand(words):
    if "--" not in words:
        sys.exit("usage: oracle.py DEFINITION... -- COMMAND...")
    cut = words.index("--")
    reason = available()
    if reason:
        print(reason, file=sys.stderr)
        sys.exit(harness.SKIPPED)
    seen = run_kernel(words[:cut], words[cut + 1:])
    sys.stdout.buffer.write(seen.stdout)
    sys.stderr.buffer.write(seen.stderr)
    print(seen.text, end="")
    print("profile:", seen.profile)
    sys.exit(seen.returncode if seen.returncode >= 0 else 128 - seen.returncode)


if __name__ == "__main__":
    by_hand(sys.argv[1:])
