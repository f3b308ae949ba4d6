"""Several tools trace one program at the same time: each has what it asked for, and nobody loses a hit when another comes or goes."""
import itertools
import os
import re
import signal
import subprocess
import sys
import time
import unittest

import harness
from attach_test import AttachCase, checksum_of_text, footprint, read, signals_of
from harness import fixture, tool, tracer, wait_until

NOBODY = 65534


def numbers_of(hit):
    return tuple(int(value) for value in re.findall(r"=(-?\d+)", hit.arguments))


class Tracer:
    """A tool that is attached to a process, or has started one."""

    def __init__(self, test, name, *words, environment=None):
        self.test, self.name, self.trace = test, name, test.path(name + ".trace")
        self.process = subprocess.Popen([*tracer("-v", "-o", self.trace), *words], stdin=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, start_new_session=True, env=environment)
        test.addCleanup(harness.stop_group, self.process)
        self.error = b""

    def attached(self):
        for line in self.process.stderr:
            self.error += line
            if line == b"uprobe-run: attached\n":
                return self
        raise AssertionError(self.error)

    def end(self, code=0):
        """Waits for the tool's end."""
        self.error += self.process.communicate(timeout=harness.TIMEOUT)[1]
        self.test.assertEqual(self.process.returncode, code, self.error)
        self.hits = harness.parse_trace(read(self.trace)) if os.path.exists(self.trace) else []
        self.counts = {name: int(count.replace(",", "")) for name, count in
                       re.findall(r"^uprobe-run: \w+/(\w+) [^\n]*: ([\d,]+) hits?", self.error.decode(), re.M)}
        return self

    def leave(self):
        self.process.send_signal(signal.SIGINT)
        return self.end()

    def engine(self):
        engines = [pid for pid in harness.descendants(self.process.pid)
                   if read(f"/proc/{pid}/comm") == "uprobe-engine\n"]
        self.test.assertEqual(len(engines), 1)
        return engines[0]


def engines_of(pid):
    """Tools that map the session of a process and are no part of it."""
    found = []
    for other in filter(str.isdigit, os.listdir("/proc")):
        try:
            is_engine = read(f"/proc/{other}/comm") == "uprobe-engine\n"
            if is_engine and "uprobe-session" in read(f"/proc/{other}/maps"):
                found.append(int(other))
        except OSError:
            pass
    return found


class TracersCase(AttachCase):
    def tracer(self, name, pid, *definitions, options=()):
        words = [*options, "-P", str(pid)]
        for definition in definitions:
            words += definition if isinstance(definition, list) else ["-p", definition]
        return Tracer(self, name, *words)

    def start_rounds(self):
        self.program = self.copy_of(fixture("live"))
        self.target = self.start_ready(self.program, "rounds")
        return self.target

    def round(self, line=b""):
        self.target.stdin.write(line + b"\n")
        self.target.stdin.flush()
        self.assertEqual(self.target.stdout.readline(), b"done\n")


class Orders(TracersCase):
    """Three tools on a program that does a hundred calls a round: what each has counted is known exactly."""

    # Each has the name f for something else; A and B share a place, and C a function with both.
    DEFINITIONS = {"A": ["p:f {}:f n=%di:s64", "p:g {}:g"], "B": ["p:f {}:f m=%di:u8"], "C": ["p:f {}:h", "r:g {}:f v=$retval"]}

    def play(self, steps):
        """Steps are names of tools, which come and go, and a round after each."""
        target = self.start_rounds()
        text, before = checksum_of_text(target.pid), signals_of(target.pid)
        there, rounds = {}, {}
        for name in steps:
            if name in there:
                tool_ = there.pop(name).leave()
                expected = {re.match(r"\w:(\w)", text_)[1]: 100 * rounds[name] for text_ in self.DEFINITIONS[name]}
                self.assertEqual(tool_.counts, expected, (steps, name, tool_.error))
                self.check_trace(name, tool_, rounds[name])
            else:
                there[name] = self.tracer(name, target.pid, *(d.format(self.program) for d in self.DEFINITIONS[name])).attached()
                rounds[name] = 0
            self.round()
            for name_ in there:
                rounds[name_] += 1
        self.assertEqual(there, {})
        wait_until(lambda: checksum_of_text(target.pid) == text, "the text as it was")
        self.assertEqual(signals_of(target.pid), before)
        self.end_well(target, b"")

    def check_trace(self, name, tool_, rounds):
        seen = sorted(hit.arguments for hit in tool_.hits)
        wanted = {"A": [f"n={i}" for i in range(100)] + 100 * [""], "B": [f"m={i}" for i in range(100)],
                  "C": 100 * [""] + [f"v={3 * i + 1:#x}" for i in range(100)]}[name]
        self.assertEqual(seen, sorted(rounds * wanted), name)

    def test_every_order_of_leaving(self):
        for leaving in itertools.permutations("ABC"):
            self.play("ABC" + "".join(leaving))

    def test_coming_back(self):
        self.play("ABACBCABCCBA")


if __name__ == "__main__":
    harness.main()
