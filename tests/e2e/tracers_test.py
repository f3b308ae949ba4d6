# SPDX-License-Identifier: MIT
"""Several tools trace one program at the same time: each gets its own hits, and none loses a hit when another comes or goes."""
import array
import fcntl
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import termios
import time

import attach_test
import harness
from attach_test import AttachCase
from harness import fixture, tool, tracer, wait_until
from process_state import checksum_of_text, footprint, read, signals_of

NUMBERED = re.compile(r": (\w+): \(0x\w+\) arg1=(-?\d+) arg2=(\d+)$")


class Tracer:
    """A tool that is attached to a process, or has started one."""

    def __init__(self, test, name, *words, can_be_stopped=False):
        self.test, self.name, self.trace = test, name, test.path(name + ".trace")
        self.process = subprocess.Popen([*tracer("-v", "-o", self.trace), *words], stdin=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, start_new_session=not can_be_stopped,
                                        preexec_fn=os.setpgrp if can_be_stopped else None)
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
        self.counts = {name: int(count.replace(",", "")) for name, count in
                       re.findall(r"^uprobe-run: \w+/(\w+) [^\n]*: ([\d,]+) hits?", self.error.decode(), re.M)}
        return self

    def lost(self):
        """As the tool's summary counts them: on a crowded machine a ring may be full."""
        counts = re.findall(rb"^uprobe-run: \w+/\w+ [^\n]* lost ([\d,]+) ", self.error, re.M)
        return sum(int(count.replace(b",", b"")) for count in counts)

    @property
    def hits(self):
        return harness.parse_trace(read(self.trace))

    def numbered(self):
        """(event, number, thread) of each hit; traces are long."""
        with open(self.trace, encoding="ascii") as file:
            for line in file:
                match = NUMBERED.search(line)
                if match:
                    yield match[1], int(match[2]), match[3]

    def leave(self):
        self.process.send_signal(signal.SIGINT)
        return self.end()

    def engine(self):
        engines = [pid for pid in harness.descendants(self.process.pid)
                   if read(f"/proc/{pid}/comm") == "uprobe-engine\n"]
        self.test.assertEqual(len(engines), 1)
        return engines[0]


# What this test starts inherits it, so that the tools of other tests, which run at the same time, are told from its own.
OWN = f"UPROBE_E2E={os.getpid()}"
os.environ.update([OWN.split("=")])


def engines():
    """The tracers of this test that have a session, also those that have outlived their launchers."""
    found = []
    for other in filter(str.isdigit, os.listdir("/proc")):
        try:
            is_engine = read(f"/proc/{other}/comm") == "uprobe-engine\n"
            is_own = is_engine and OWN in read(f"/proc/{other}/environ").split("\0")
            if is_own and "uprobe-session" in read(f"/proc/{other}/maps"):
                found.append(int(other))
        except OSError:
            pass
    return found


class TracersCase(AttachCase):
    def tracer(self, name, pid, *definitions, options=(), can_be_stopped=False):
        words = [*options, "-P", str(pid)]
        for definition in definitions:
            words += definition if isinstance(definition, list) else ["-p", definition]
        return Tracer(self, name, *words, can_be_stopped=can_be_stopped)

    def start_rounds(self):
        self.program = self.copy_of(fixture("live"))
        self.target = self.start_ready(self.program, "rounds")
        return self.target

    def round(self, line=b""):
        self.target.stdin.write(line + b"\n")
        self.target.stdin.flush()
        self.assertEqual(self.target.stdout.readline(), b"done\n")


class Orders(TracersCase):
    """Three tools on a program that does a hundred calls a round: the count of each is known exactly."""

    # Each has the name f for something else; A and B share a place, and C a function with both.
    DEFINITIONS = {"A": ["p:f {}:f n=%di:s64", "p:g {}:g"], "B": ["p:f {}:f m=%di:u8"], "C": ["p:f {}:h", "r:g {}:f v=$retval"]}

    def play(self, steps):
        """Steps are names of tools, which come and go; a round follows each."""
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
        self.assertEqual(checksum_of_text(target.pid), text)
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


def descriptors_of(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class BusyCase(TracersCase):
    def start_busy(self):
        self.program = fixture("attached_busy")
        self.target = self.start_ready(self.program)
        self.text, self.before = checksum_of_text(self.target.pid), signals_of(self.target.pid)
        return self.target

    def check_sequences(self, one):
        """How many sequences there are: one for each function and thread. The summary counts each number that is left out."""
        last, left_out = {}, 0
        for event, number, thread in one.numbered():
            if (event, thread) in last:
                self.assertGreater(number, last[event, thread], one.name)
                left_out += number - last[event, thread] - 1
            last[event, thread] = number
        self.assertLessEqual(left_out, one.lost(), one.error)
        return len(last)

    def definitions(self, *names):
        return [f"p:{name} {self.program}:{name} %di:s64 %si:s64" for name in names]

    def check_as_before(self):
        wait_until(lambda: engines() == [], "the engines' end")
        self.assertEqual(checksum_of_text(self.target.pid), self.text)
        self.assertEqual(signals_of(self.target.pid), self.before)


class Threads(BusyCase):
    """Eight threads number their calls: a tool sees each of them exactly once while it is there."""

    def test_comings_and_goings(self):
        target = self.start_busy()
        steady = self.tracer("steady", target.pid, *self.definitions("several", "single"), options=["-b", "8M"]).attached()
        pick, there, number = random.Random(5), {}, 0
        left = []  # read in the end: the others' traces grow as long as they are there
        for _ in range(harness.some_of(48)):
            if there and (len(there) == 3 or pick.random() < 0.5):
                name = pick.choice(sorted(there))
                left.append(there.pop(name).leave())
            else:
                number += 1
                chosen = pick.choice((["several"], ["single"], ["single", "several"]))
                there[f"t{number}"] = self.tracer(f"t{number}", target.pid, *self.definitions(*chosen)).attached()
            time.sleep(0.02)
        # The first one goes, others stay
        stays = self.tracer("stays", target.pid, *self.definitions("several", "single")).attached()
        steady.leave()
        last = [other.leave() for other in there.values()]
        time.sleep(0.05)
        stays.leave()
        self.check_as_before()
        self.end_well(target)
        for one in left:
            self.assertGreater(self.check_sequences(one), 0)
        for one in last:
            self.check_sequences(one)
        self.assertEqual((self.check_sequences(steady), self.check_sequences(stays)), (16, 16))

    def test_many_clients_leave_nothing(self):
        target = self.start_busy()
        first = self.tracer("first", target.pid, *self.definitions("single")).attached()
        for number in range(harness.some_of(200)):
            self.tracer("client", target.pid, *self.definitions("several"), options=["-n", "5"]).end()
            if number == 1:
                size = footprint(target.pid)
                descriptors = descriptors_of(first.engine())
        self.assertEqual(footprint(target.pid), size)
        wait_until(lambda: descriptors_of(first.engine()) <= descriptors + 1, "the descriptors of the last client are closed")
        self.check_sequences(first.leave())
        self.check_as_before()
        self.end_well(target)

    def test_two_begin_at_the_same_time(self):
        target = self.start_busy()
        for _ in range(harness.some_of(16)):
            both = [self.tracer(name, target.pid, *self.definitions("several"), options=["-d", "300ms"]) for name in "ab"]
            for one in both:
                one.end()
                self.assertEqual(self.check_sequences(one), 8)
            self.check_as_before()
        self.end_well(target)


class Ways(BusyCase):
    """The ways in which a tool may end, and their effects on the others."""

    def two(self):
        target = self.start_busy()
        first = self.tracer("first", target.pid, *self.definitions("several")).attached()
        return target, first, self.tracer("client", target.pid, *self.definitions("single", "several")).attached()

    def test_so_many_and_so_long(self):
        target, first, client = self.two()
        few = self.tracer("few", target.pid, *self.definitions("several"), options=["-n", "5"]).end()
        self.assertEqual(len(few.hits), 5)
        short = self.tracer("short", target.pid, *self.definitions("several"), options=["-d", "100ms"]).end()
        self.check_sequences(short)
        self.assertNotIn(b"lost", client.leave().error)
        first.leave()
        self.check_as_before()
        self.end_well(target)

    def test_a_client_is_killed(self):
        target, first, client = self.two()
        engine = client.engine()
        client.process.kill()
        wait_until(lambda: not os.path.exists(f"/proc/{engine}") or "\nState:\tZ" in read(f"/proc/{engine}/status"), "its engine's end")
        after = self.tracer("after", target.pid, *self.definitions("single")).attached()
        os.kill(after.engine(), signal.SIGKILL)
        self.assertIn(b"killed by signal 9", after.end(125).error)
        time.sleep(0.05)
        self.assertEqual(self.check_sequences(first.leave()), 8)
        self.check_as_before()
        self.end_well(target)

    def test_the_first_is_killed(self):
        target, first, client = self.two()
        first.process.kill()
        third = self.tracer("third", target.pid, *self.definitions("single")).attached()
        time.sleep(0.05)
        self.assertEqual(self.check_sequences(client.leave()), 16)
        self.assertEqual(self.check_sequences(third.leave()), 8)
        self.check_as_before()
        self.end_well(target)

    def test_the_engine_is_killed(self):
        target, first, client = self.two()
        os.kill(first.engine(), signal.SIGKILL)
        self.assertIn(b"its probes are removed", first.end(125).error)
        self.assertIn(b"has been killed", client.end(125).error)
        self.check_as_before()
        self.check_sequences(self.tracer("again", target.pid, *self.definitions("several"), options=["-d", "50ms"]).end())
        self.end_well(target)

    def test_the_engine_is_killed_when_it_has_outlived_its_front(self):
        target, first, client = self.two()
        first.leave()
        engine, = engines()
        os.kill(engine, signal.SIGKILL)
        self.assertIn(b"has been killed", client.end(125).error)
        self.check_as_before()
        self.end_well(target)

    def test_the_target_ends(self):
        target, first, client = self.two()
        self.end_well(target)
        for one in (first, client):
            self.assertIn(b"the process has ended", one.end().error)
            self.check_sequences(one)

    def test_the_target_ends_when_the_first_has_left(self):
        target, first, client = self.two()
        first.leave()
        self.end_well(target)
        self.assertIn(b"the process has ended", client.end().error)

    def test_a_client_that_is_stopped(self):
        target, first, client = self.two()
        harness.stop(client.engine())
        engine = first.engine()
        time.sleep(1)
        self.assertEqual(self.check_sequences(first.leave()), 8)
        os.kill(client.engine(), signal.SIGCONT)
        client.leave()
        self.assertEqual(self.check_sequences(client), 16)
        self.check_as_before()
        self.assertTrue(engine)
        self.end_well(target)

    def test_library_fork_and_exec(self):
        library = fixture("libplugin.so")
        target = self.start_ready(sys.executable, "-c", attach_test.Followed.SCRIPT, library)
        first = self.tracer("first", target.pid, f"p:c {library}:plugin_call +0(%di):string").attached()
        client = self.tracer("client", target.pid, f"p:c {library}:plugin_call +0(%di):string",
                            f"r:r {library}:plugin_call").attached()
        target.stdin.write(b"go\n")
        target.stdin.flush()
        self.assertEqual(target.stdout.readline(), b"done\n")
        whole = [hit.arguments for hit in client.leave().hits if hit.event == "c"]
        self.assertEqual(whole, ['arg1="a"', 'arg1="b"', 'arg1="c"'])
        self.assertEqual(client.counts, {"c": 3, "r": 3})
        self.assertEqual([hit.arguments for hit in first.leave().hits], whole)
        self.end_well(target)

    def test_the_first_is_stopped(self):
        target = self.start_busy()
        first = self.tracer("first", target.pid, *self.definitions("several"), can_be_stopped=True).attached()
        os.kill(first.process.pid, signal.SIGTSTP)
        wait_until(lambda: read(f"/proc/{first.process.pid}/stat").split()[2] == "T", "the stop")
        time.sleep(0.2)
        client = self.tracer("client", target.pid, *self.definitions("single", "several"), options=["-d", "500ms"]).end()
        self.assertNotIn(b"lost", client.error)
        self.assertEqual(self.check_sequences(client), 16)
        os.kill(first.process.pid, signal.SIGCONT)
        first.leave()
        self.check_as_before()
        self.end_well(target)

    def test_the_first_does_not_read(self):
        """Its output is blocked; tools that come later have all of their hits."""
        target = self.start_busy()
        words = [*tracer("-q", "-P", str(target.pid)), "-p", self.definitions("several")[0]]
        first = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
        self.addCleanup(harness.stop_group, first)
        self.assertIn(b"attached_busy-", first.stdout.readline(), "it has begun")
        amounts = [0, 0]

        def is_full():
            waiting = array.array("i", [0])
            fcntl.ioctl(first.stdout, termios.FIONREAD, waiting)
            amounts.append(waiting[0])
            time.sleep(0.1)
            return amounts[-1] == amounts[-2] != 0

        wait_until(is_full, "a full pipe")
        client = self.tracer("client", target.pid, *self.definitions("single", "several")).attached()
        time.sleep(0.5)
        client.leave()
        self.assertNotIn(b"lost", client.error)
        self.assertEqual(self.check_sequences(client), 16)
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=harness.TIMEOUT)
        self.assertEqual(first.returncode, 0)
        self.check_as_before()
        self.end_well(target)


class Launched(TracersCase):
    """The first one has started the program."""

    def setUp(self):
        super().setUp()
        self.program = self.copy_of(fixture("live"))

    def launch(self, mode, *definitions, options=()):
        self.target = subprocess.Popen([*tracer("-o", self.path("launched.trace"), "--profile", *options), *definitions, "--", self.program, mode],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        self.addCleanup(harness.stop_group, self.target)
        self.assertEqual(self.target.stdout.readline(), b"ready\n")
        return next(pid for pid in harness.descendants(self.target.pid) if os.readlink(f"/proc/{pid}/exe") == self.program)

    def finish(self, line=b""):
        out, err = self.target.communicate(line, harness.TIMEOUT)
        self.assertEqual(self.target.returncode, 0, err)
        self.profile = {name: int(number) for name, number in re.findall(rb"^  \S+ +(\S+) +(\d+) +\d+$", err, re.M)}
        return out, err

    def test_counts(self):
        pid = self.launch("rounds", "-p", f"p:g {self.program}:g")
        self.round()
        client = self.tracer("client", pid, f"p:g {self.program}:g n=%di:s64", f"r:f {self.program}:f").attached()
        self.round()
        self.assertEqual(client.leave().counts, {"g": 200, "f": 200})
        self.round()
        last = self.tracer("last", pid, f"p:g {self.program}:g").attached()
        self.round()
        self.finish()
        self.assertEqual(self.profile, {b"g": 800})
        self.assertEqual(last.end().counts, {"g": 200})
        self.assertIn(b"the process has ended", last.error)

    def test_exec_and_new_code(self):
        pid = self.launch("rounds", "-p", f"p:g {self.program}:g")
        libm = os.path.join(os.path.dirname(harness.libc_of(self.program)), "libm.so.6")
        client = self.tracer("client", pid, f"p:cbrt {libm}:cbrt", f"p:f {self.program}:f").attached()
        self.round(b"load")
        self.target.stdin.write(b"exec\n")
        self.target.stdin.flush()
        self.assertEqual(self.target.stdout.readline(), b"ready\n")
        self.round()
        self.finish()
        self.assertEqual(client.end().counts, {"cbrt": 200, "f": 200})

    def test_the_first_wants_no_more(self):
        pid = self.launch("rounds", "-p", f"p:g {self.program}:g", options=["-n", "50"])
        client = self.tracer("client", pid, f"p:f {self.program}:f").attached()
        for _ in range(5):
            self.round()
        self.assertEqual(client.leave().counts, {"f": 1000})
        self.finish()

    def test_the_first_is_killed(self):
        pid = self.launch("rounds", "-p", f"p:g {self.program}:g")
        client = self.tracer("client", pid, f"p:g {self.program}:g n=%di:s64").attached()
        self.round()
        self.target.kill()
        self.target.wait()
        self.assertIn(b"has been killed", client.end(125).error)
        self.round()
        after = self.tracer("after", pid, f"p:g {self.program}:g").attached()
        self.round()
        self.assertEqual(after.leave().counts, {"g": 100})
        self.round()

    def test_hot(self):
        pid = self.launch("hot", "-p", f"p:g {self.program}:g", options=["-b", "64K"])
        for number in range(12):
            self.tracer(f"client{number}", pid, f"p:g {self.program}:g n=%di", f"p:h {self.program}:h", options=["-n", "500"]).end()
        out, err = self.finish(b"\n")
        self.assertEqual(self.profile[b"g"], int(out), err)

    def stopped_for_a_million_hits(self):
        pid = self.launch("hot", "-p", f"p:g {self.program}:g", options=["-b", "1M"])
        client = self.tracer("client", pid, f"p:f {self.program}:f").attached()
        harness.stop(client.engine())

        def queued():
            """The hits that the tool has read for the client, and those that found the rings full on a crowded machine are none."""
            seen = harness.run([tool(), "--control", str(self.target.pid), "--stats"])
            counts = re.search(rb"uprobes/f, of process \d+ (\d+) hits, (\d+) lost", seen.stdout)
            self.assertTrue(counts, seen.stderr)
            return int(counts[1]) - int(counts[2])
        wait_until(lambda: queued() > 1500000, "more hits than may wait for a client", 100)
        return client

    def test_a_client_that_does_not_read_for_a_million_hits(self):
        client = self.stopped_for_a_million_hits()
        os.kill(client.engine(), signal.SIGCONT)
        client.leave()
        lost = re.search(rb"uprobes/f [^\n]* hits, lost ([\d,]+) \(([^\n]*)\)", client.error)
        self.assertIn(b"did not keep up", lost[2])
        with open(client.trace, "rb") as file:
            printed = sum(line.count(b": f: (") for line in file)
        self.assertEqual(printed + int(lost[1].replace(b",", b"")), client.counts["f"])
        out, err = self.finish(b"\n")
        self.assertEqual(self.profile[b"g"], int(out), err)

    def test_and_then_everything_has_ended(self):
        client = self.stopped_for_a_million_hits()
        out, err = self.finish(b"\n")
        self.assertEqual(self.profile[b"g"], int(out), err)
        os.kill(client.engine(), signal.SIGCONT)
        self.assertIn(b"the process has ended", client.end().error)
        self.assertIn(b"before it could tell", client.error)


if __name__ == "__main__":
    harness.main()
