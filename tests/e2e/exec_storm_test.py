# SPDX-License-Identifier: MIT
"""Threads of a process that call execve at the same time, some in vain: the program never hangs, and its successor is traced or
reported as untraced."""
import os
import subprocess

import harness
from harness import fixture, preloaded, tracer

ROUNDS = 3
RUNS = int(os.environ.get("STORM_RUNS", "10" if harness.LONG else "2"))
HOWS = ("libc", "raw", "mixed", "unseen", "ended", "forked")
LAST = b"the last program\n"


class ExecStorm(harness.TestCase):
    def definition(self, program):
        return f"p:reached {program}:reached round=%di:s32"

    def storms(self, *names):
        for name in names:
            program = fixture(name)
            for how in HOWS:
                for threads in ("3", "8"):
                    for run in range(RUNS):
                        with self.subTest(program=name, how=how, threads=threads, run=run):
                            yield program, how, threads

    def check_rounds(self, hits, said):
        rounds = [hit.arguments for hit in hits]
        expected = [f"round={left}" for left in range(ROUNDS, -1, -1)]
        if b"untraced" in said:
            expected = [one for one in expected if one in rounds]
        self.assertEqual(rounds, expected, said)

    def test_launched(self):
        for program, how, threads in self.storms("exec_storm", "exec_storm_static", "exec_storm_musl_static"):
            seen = harness.run_tool([self.definition(program)], [program, how, threads, str(ROUNDS)])
            self.assertEqual((seen.returncode, seen.stdout), (0, LAST), seen.stderr)
            self.check_rounds(seen.hits, seen.stderr)

    def test_attached(self):
        for program, how, threads in self.storms("exec_storm"):
            target = subprocess.Popen([program, how, threads, str(ROUNDS)], env={**os.environ, "WAITS": "1"},
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.assertEqual(target.stdout.readline(), b"waits\n")
            trace = self.path("trace")
            attached = subprocess.Popen([*tracer("-v", "-o", trace), "-P", str(target.pid), "-p",
                                         self.definition(program)], stderr=subprocess.PIPE)
            said = b""
            for line in attached.stderr:
                said += line
                if line == b"uprobe-run: attached\n":
                    break
            out, _ = target.communicate(b"x", harness.TIMEOUT)
            self.assertEqual((target.returncode, out), (0, LAST), said)
            said += attached.communicate(timeout=harness.TIMEOUT)[1]
            self.assertEqual(attached.returncode, 0, said)
            with open(trace, encoding="ascii") as file:
                hits = harness.parse_trace(file.read())
            # The first program's own call came before the tool.
            self.assertTrue(all(hit.arguments != f"round={ROUNDS}" for hit in hits))
            if b"untraced" not in said:
                self.assertEqual(len(hits), ROUNDS, said)

    def test_preloaded(self):
        for program, how, threads in self.storms("exec_storm"):
            trace = self.path("trace")
            environment = {**os.environ, **preloaded(UPROBE_PROBES=self.definition(program), UPROBE_OUTPUT=trace)}
            seen = harness.run([program, how, threads, str(ROUNDS)], env=environment)
            self.assertEqual((seen.returncode, seen.stdout), (0, LAST), seen.stderr)
            with open(trace, encoding="ascii") as file:
                self.check_rounds(harness.parse_trace(file.read()), seen.stderr)
            os.unlink(trace)


if __name__ == "__main__":
    harness.main()
