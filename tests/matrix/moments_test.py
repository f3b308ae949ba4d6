# SPDX-License-Identifier: MIT
"""The tool, or the program, is stopped or killed at moments that are spread evenly over each phase: launch, attach, exec following,
live add, detach. moments.c, preloaded into the tool, counts the calls by which it holds and changes programs, and sends the signal at
one of them. The program does what it does without a tool; a stopped tool holds it no longer than the guardian needs; nothing is left.
"""
import concurrent.futures
import mmap
import os
import re
import signal
import struct
import subprocess
import time

import harness

POINTS = 40 if harness.LONG else 10  # of each phase
WAIT = 60  # seconds until a program counts as hanging
TOOL, TRACEE = 0, 1  # who gets the signal: see moments.c


class Moments:
    """The file that the tool's processes and the test share."""
    CALLS, WHEN, SIGNAL, WHOM, FIRED = range(0, 20, 4)

    def __init__(self, path):
        with open(path, "w+b") as file:
            file.truncate(4096)
            self.memory = mmap.mmap(file.fileno(), 4096)
        self.path = path

    def get(self, field):
        return struct.unpack_from("I", self.memory, field)[0]

    def set(self, field, value):
        struct.pack_into("I", self.memory, field, value)

    def arm(self, distance, number, whom):
        self.set(self.SIGNAL, number)
        self.set(self.WHOM, whom)
        self.set(self.WHEN, self.get(self.CALLS) + distance)

    def has_come(self):
        return self.get(self.FIRED) != 0

    def disarm(self):
        """No signal is sent after this. One that is on its way arrives before it returns."""
        when = self.get(self.WHEN)
        self.set(self.WHEN, 0)
        deadline = time.monotonic() + 1.0
        while 0 < when <= self.get(self.CALLS) and not self.has_come() and time.monotonic() < deadline:
            time.sleep(0.01)

    def environment(self):
        return dict(os.environ, LD_PRELOAD=harness.fixture("moments.so"), MOMENTS=self.path)


def kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def names(pid, file):
    try:
        with open(f"/proc/{pid}/{file}", "rb") as text:
            return text.read()
    except OSError:
        return b""


def left_of(path):
    """Processes whose command line or environment names a file of the test: the tracer hides its command line."""
    return [int(pid) for pid in os.listdir("/proc")
            if pid.isdigit() and any(path.encode() in names(pid, file) for file in ("cmdline", "environ"))]


class Run:
    """One run of the tool on one program, in a folder of its own; each wait has an end."""

    def __init__(self, test, name):
        self.test, self.folder = test, test.path(name)
        os.mkdir(self.folder)
        self.moments = Moments(os.path.join(self.folder, "moments"))
        self.cell, self.started = test.cell, []
        self.probe = f"p:numbers {self.cell}:take_number %di:u64"

    def start(self, *command, env=None):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   start_new_session=True, env=env)
        self.started.append(process)
        return process

    def start_tool(self, *words):
        return self.start(harness.tool(), "-o", os.path.join(self.folder, "trace"), "-p", self.probe, *words,
                          env=self.moments.environment())

    def wake(self):
        """A stopped program goes on when its user says so; a stopped tool lets it go by itself."""
        pid = self.moments.get(Moments.FIRED)
        if pid != 0:
            kill(pid, signal.SIGCONT)

    def end(self):
        for process in self.started:
            harness.stop_group(process)
        harness.wait_until(lambda: left_of(self.folder) == [], "the end of all processes")


class Started(Run):
    """The tool starts the program."""

    def __init__(self, test, name, *mode):
        super().__init__(test, name)
        self.mode = mode

    def play(self, number, whom, distance):
        self.moments.arm(distance, number, whom)
        process = self.start_tool("-q", "--", self.cell, *self.mode)
        if number == signal.SIGSTOP:
            self.await_end(process, whom)
        out, err = process.communicate(timeout=WAIT)
        self.check(number, whom, process.returncode, out, err)
        return self.moments.get(Moments.CALLS)

    def await_end(self, process, whom):
        """The tool stays stopped once the program has ended, so that is what is waited for."""
        harness.wait_until(lambda: self.moments.has_come() or process.poll() is not None, "the moment", WAIT)
        if whom == TOOL and self.moments.has_come():
            harness.wait_until(lambda: process.poll() is not None or self.has_program_ended(process), "the program's end", WAIT)
        self.wake()

    def has_program_ended(self, process):
        """Or has not begun: a child that waits to become the program is held too."""
        return all(re.sub(rb".*\)", b"", names(pid, "stat")).split()[:1] in ([b"Z"], []) for pid in harness.descendants(process.pid))

    def check(self, number, whom, code, out, err):
        test = self.test
        if number == signal.SIGKILL and self.moments.has_come():
            if whom == TRACEE:
                test.assertIn(code, (-signal.SIGKILL, 137), err)
                test.assertTrue(test.outputs[self.mode].startswith(out), out)
            elif out != b"":  # it has begun
                test.assertEqual(out, test.outputs[self.mode], err)
            return
        test.assertEqual((code, out), (7, test.outputs[self.mode]), err)


class Attached(Run):
    """The tool attaches to the program, which answers lines."""
    LINE = b"threads 2\n"

    def __init__(self, test, name, phase):
        super().__init__(test, name)
        self.phase = phase
        self.program = self.start(self.cell, "lines")
        test.assertEqual(self.program.stdout.readline(), b"ready\n")
        self.lines = 0

    def line(self):
        """The program does a piece of work; None: it has been killed."""
        try:
            self.program.stdin.write(b"\n")
            self.program.stdin.flush()
        except BrokenPipeError:
            return None
        self.lines += 1
        return self.program.stdout.readline()

    def play(self, number, whom, distance):
        target = self.program.pid if whom == TRACEE else TOOL
        if self.phase == "attach":
            self.moments.arm(distance, number, target)
        tool = self.start_tool("-v", "--session", os.path.basename(self.folder), "-P", str(self.program.pid))
        before = self.moments.get(Moments.CALLS)
        if self.phase != "attach":
            self.await_attached(tool)
            before = self.moments.get(Moments.CALLS)
            self.moments.arm(distance, number, target)
        if self.phase == "add":
            self.add()
        if self.phase == "detach":
            tool.send_signal(signal.SIGINT)
        self.await_moment(tool)
        self.moments.disarm()
        counted = self.moments.get(Moments.CALLS) - before
        self.finish(tool, number, whom)
        return counted

    def await_attached(self, tool):
        for line in tool.stderr:
            if line == b"uprobe-run: attached\n":
                return
        raise AssertionError("not attached")

    def add(self):
        done = subprocess.run([harness.tool(), "--control", os.path.basename(self.folder), "-p",
                               f"p:more {self.cell}:with_threads"], capture_output=True, timeout=WAIT)
        if not self.moments.has_come():
            self.test.assertEqual(done.returncode, 0, done.stderr)

    def await_moment(self, tool):
        """Or the end of the phase without it: a crowded machine makes fewer calls than the run that counted them."""
        begun, calls = time.monotonic(), -1
        while not self.moments.has_come() and tool.poll() is None:
            if self.moments.get(Moments.CALLS) != calls:
                calls, begun = self.moments.get(Moments.CALLS), time.monotonic()
            if time.monotonic() - begun > 1.0:
                return
            time.sleep(0.01)

    def finish(self, tool, number, whom):
        test = self.test
        is_gone = number == signal.SIGKILL and whom == TRACEE and self.moments.has_come()
        if number == signal.SIGSTOP and whom == TRACEE:
            self.wake()
        if number == signal.SIGKILL and whom == TOOL and self.moments.has_come():
            # What was being written is written to its end by another process.
            harness.wait_until(lambda: all(names(pid, "comm") != b"uprobe-engine\n" for pid in left_of(self.folder)), "the tool's end")
        if not is_gone:
            for _ in range(3):
                test.assertEqual((self.line(), self.program.poll()), (self.LINE, None))
        self.wake()
        tool.send_signal(signal.SIGINT)
        said = tool.communicate(timeout=WAIT)[1]
        if is_gone:
            test.assertEqual(self.program.wait(WAIT), -signal.SIGKILL)
            return
        harness.wait_until(lambda: b"\nTracerPid:\t0\n" in names(self.program.pid, "status"), "the program's freedom", WAIT)
        test.assertEqual(self.line(), self.LINE, said)
        out, err = self.program.communicate(timeout=WAIT)
        test.assertEqual((self.program.returncode, out, err), (7, b"calls %d\n" % (10 * self.lines), b""), said)
        if number == signal.SIGSTOP or not self.moments.has_come():
            test.assertEqual(tool.returncode, 0, said)


class EveryMoment(harness.TestCase):
    MODES = {"launch": ("busy", "2"), "follow": ("chain", "2")}

    def setUp(self):
        super().setUp()
        self.cell = self.copy_of(harness.fixture("cell"))
        self.outputs = {mode: harness.run([self.cell, *mode]).stdout for mode in self.MODES.values()}

    def play(self, phase, name, *moment):
        run = Started(self, name, *self.MODES[phase]) if phase in self.MODES else Attached(self, name, phase)
        try:
            return run.play(*moment)
        finally:
            run.end()

    def try_at(self, phase, number, whom, distance):
        """The error, or None."""
        try:
            self.play(phase, f"{phase}.{int(number)}.{whom}.{distance}", number, whom, distance)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            return f"{signal.Signals(number).name} for {'the program' if whom else 'the tool'} at call {distance}: {error}"
        return None

    def check(self, phase):
        whole = self.play(phase, "whole", signal.SIGCONT, TOOL, 1_000_000)
        self.assertGreater(whole, 0)
        wrong = []
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            points = sorted({1 + (whole - 1) * i // (POINTS - 1) for i in range(POINTS)})
            tries = [pool.submit(self.try_at, phase, number, whom, point) for point in points
                     for number in (signal.SIGSTOP, signal.SIGKILL) for whom in (TOOL, TRACEE)]
            wrong = [done.result() for done in tries if done.result()]
        self.assertEqual(wrong, [], f"{len(wrong)} of {len(tries)}, calls: {whole}")

    def test_launch(self):
        self.check("launch")

    def test_exec_following(self):
        self.check("follow")

    def test_attach(self):
        self.check("attach")

    def test_live_add(self):
        self.check("add")

    def test_detach(self):
        self.check("detach")


if __name__ == "__main__":
    harness.main()
