# SPDX-License-Identifier: MIT
"""What it costs a program that a traced shell starts to come into the session: in stops, not in time. And that each one is traced."""
import re
import subprocess
import sys

import harness

RUNS = 200 if harness.LONG else 60
# A stop gives the CPU away, as each request to the tool does: four stops, and one request, for libc's code. Of single system calls two
# stops each there would be 80. What the program waits for by itself, and the machine for it, differs: the least of several counts.
MOST_STOPS = 6
# A child of fork has pages of its own where it writes, or reads what its parent never has: a few of the agent's.
MOST_PAGES = 60
FORK = "import os, resource as r\nif os.fork() == 0: print(r.getrusage(r.RUSAGE_SELF).ru_minflt, flush=True), os._exit(0)\nos.wait()"


class ExecCost(harness.TestCase):
    def setUp(self):
        self.libc = harness.libc_of("/bin/cat")

    def run_shell(self, script):
        seen = harness.run_tool([f"p:opened {self.libc}:open64 file=+0(%di):string"], ["/bin/sh", "-c", script])
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertNotIn(b"untraced", seen.stderr)
        return seen

    def test_stops(self):
        seen = self.run_shell("for i in 1 2 3 4 5 6 7 8 9; do /bin/cat /proc/self/status; done")
        stops = [int(n) for n in re.findall(rb"^voluntary_ctxt_switches:\s*(\d+)", seen.stdout, re.M)]
        self.assertEqual(len(stops), 9)
        self.assertLessEqual(min(stops), MOST_STOPS, stops)

    def test_pages_of_a_child(self):
        command = [sys.executable, "-c", FORK]
        plain = subprocess.run(command, capture_output=True, check=True)
        seen = harness.run_tool([f"p:opened {self.libc}:open64"], command)
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertLess(int(seen.stdout), int(plain.stdout) + MOST_PAGES, (seen.stdout, plain.stdout))

    def test_each_is_traced(self):
        seen = self.run_shell(f"i=0; while [ $i -lt {RUNS} ]; do /bin/cat /dev/null; i=$((i+1)); done")
        opened = [hit for hit in seen.hits if hit.arguments == 'file="/dev/null"']
        self.assertEqual(len(opened), RUNS, seen.stderr)


if __name__ == "__main__":
    harness.main()
