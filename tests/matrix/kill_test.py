# SPDX-License-Identifier: MIT
"""The tool is killed by SIGKILL at any moment, and the traced program goes on undisturbed. Moments
are random but seeded; `--rounds N` asks for more of them.
"""
import concurrent.futures
import os
import random
import signal
import subprocess
import sys
import time

import harness

LINKS = 12  # of the chain of execs
ROUNDS = 32 if harness.LONG else 12
PYTHON = "/usr/bin/python3"
SPAWN_JOB = ("import os, subprocess, sys\n"
             "for _ in range(6): assert subprocess.run([sys.argv[1], 'quick']).returncode == 7\n"
             "os._exit(7)")
LIBRARIES_JOB = ("import os, sys, ctypes, decimal, lzma, bz2, hashlib, ssl, sqlite3\n"
                 "print('done', flush=True); os._exit(7)")
SHELL_JOB = 'for i in 1 2 3 4 5 6; do "$0" quick; done; exit 7'
WAIT = 30  # seconds until a program counts as hanging; it waits a second for a dead tool at each kind of request


def all_output(process):
    """Waits until every process of the call has ended. None: they hang."""
    try:
        return process.communicate(timeout=WAIT)
    except subprocess.TimeoutExpired:
        harness.stop_group(process)
        return None


def helpers_of(output):
    """The preloaded library's helpers that write to this file."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as words, open(f"/proc/{entry}/environ", "rb") as variables:
                if b"--preload-helper" in words.read() and f"UPROBE_OUTPUT={output}\0".encode() in variables.read():
                    yield int(entry)
        except OSError:
            pass


class Killed(harness.TestCase):
    rounds = ROUNDS

    def setUp(self):
        super().setUp()
        self.cell = self.copy_of(harness.fixture("cell"))
        self.probe = f"p:numbers {self.cell}:take_number %di:u64"

    def start(self, mode, number, door):
        trace = self.path(f"trace.{mode}.{number}")
        command, variables = [self.cell, *mode.split()], dict(os.environ)
        if mode == "shell":
            command = [harness.need("sh"), "-c", SHELL_JOB, self.cell]
        if mode == "libraries":
            command = [PYTHON, "-I", "-c", LIBRARIES_JOB]
        if mode == "spawn":
            command = [PYTHON, "-I", "-c", SPAWN_JOB, self.cell]
        if door == "preload":
            library = os.path.join(os.path.dirname(harness.tool()), "libuprobe.so")
            variables.update(LD_PRELOAD=library, UPROBE_PROBES=self.probe, UPROBE_OUTPUT=trace)
        else:
            command = [harness.tool(), "-q", "-o", trace, "-p", self.probe, "--", *command]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=variables, start_new_session=True), trace

    def time_of(self, mode, door):
        begin = time.monotonic()
        process, _ = self.start(mode, "whole", door)
        out, err = process.communicate(timeout=WAIT)
        self.assertEqual((process.returncode, err), (7, b""))
        return time.monotonic() - begin, out

    def kill_once(self, mode, number, door, moment, expected):
        """The error, or None."""
        process, trace = self.start(mode, number, door)
        time.sleep(moment)
        try:
            for pid in ([process.pid] if door == "tool" else helpers_of(trace)):
                os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        seen = all_output(process)
        if seen is None:
            return f"killed after {moment:.6f} s: the program hangs"
        out, err = seen
        begun = out != b"" or door == "preload"
        if begun and out != expected:
            return f"killed after {moment:.6f} s: the program was lost: {out[-60:]}"
        if door == "preload" and process.returncode != 7:
            return f"killed after {moment:.6f} s: exit code {process.returncode}"
        if err.count(b"\n") > (1 if door == "preload" else 0):
            return f"killed after {moment:.6f} s: {err!r}"
        return None

    def check(self, mode, door, rounds):
        whole, expected = self.time_of(mode, door)
        moments = random.Random(f"{mode} {door}")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            tries = [pool.submit(self.kill_once, mode, number, door, moments.uniform(0, whole * 1.1), expected)
                     for number in range(rounds)]
        wrong = [done.result() for done in tries if done.result()]
        self.assertEqual(wrong, [], f"{len(wrong)} of {rounds}")

    def test_chain_of_execs(self):
        self.check(f"chain {LINKS}", "tool", self.rounds)

    def test_commands_of_a_shell(self):
        self.check("shell", "tool", self.rounds // 2)

    def test_commands_of_a_program_that_uses_vfork(self):
        if not os.path.exists(PYTHON):
            self.skipTest(f"no {PYTHON}")
        self.check("spawn", "tool", self.rounds // 2)

    def test_libraries_opened_at_the_same_time(self):
        if not os.path.exists(PYTHON):
            self.skipTest(f"no {PYTHON}")
        for door in ("tool", "preload"):
            with self.subTest(door=door):
                self.check("libraries", door, self.rounds // 2)

    def test_signals_around_execve(self):
        self.check("failing-execs", "tool", self.rounds // 2)

    def test_launch(self):
        self.check("quick", "tool", self.rounds // 2)

    def test_threads_and_forks(self):
        self.check("busy 10", "tool", self.rounds // 2)

    def test_helper_of_a_preloaded_program(self):
        self.check("busy 10", "preload", self.rounds // 2)

    def test_helpers_along_a_chain_of_execs(self):
        self.check("chain 3", "preload", self.rounds // 2)


if __name__ == "__main__":
    if "--rounds" in sys.argv:
        at = sys.argv.index("--rounds")
        Killed.rounds = int(sys.argv[at + 1])
        del sys.argv[at:at + 2]
    harness.main()
