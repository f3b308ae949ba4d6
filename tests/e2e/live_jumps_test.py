# SPDX-License-Identifier: MIT
"""Probes that come to a running program become jumps when no thread is inside of what the jump displaces."""
import re
import time

import harness
from harness import wait_until
from live_test import Live

NAMES = ("pushes", "loads", "single")


class Jumps(Live):
    """`--control SESSION --list -v` tells how each probe is placed."""

    def begin(self, program, argument, *definitions):
        self.program = self.copy_of(harness.fixture(program))
        self.start(argument, *(definitions or ("p:z {}:main",)))

    def tiers(self):
        return dict(re.findall(r"^uprobes/(\S+) (.*)$", self.told("--list", "-v"), re.M))

    def becomes(self, tier, *names):
        """By breakpoints only, if the test runs so."""
        expected = "int3" if harness.Options.tier == "int3" else tier
        wait_until(lambda: all(self.tiers()[name] == expected for name in names), f"{names} by {expected}")

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def pause(self):
        return int(re.fullmatch(r"(\d+) calls\n", self.say("pause"))[1])

    def add(self, *names):
        self.told(*(word for name in names for word in ("-p", f"p:{name} {{}}:{name} n=%di:s64")))


class Hot(Jumps):
    def test_exact_counts_while_breakpoints_become_jumps(self):
        self.begin("hot_threads", "4")
        before = self.pause()
        self.add(*NAMES)
        self.assertEqual(self.say("run"), "runs\n")
        self.becomes("jump", *NAMES)
        calls = self.pause() - before
        wait_until(lambda: self.hits_of(*NAMES) == [calls] * 3, f"{calls} hits of each")
        out, _, _ = self.finish()
        self.assertEqual(out, "0 mistakes, interrupted\n")

    def hits_of(self, *names):
        stats = dict(re.findall(r"^uprobes/(\S+) (\d+) hits", self.told("--stats"), re.M))
        return [int(stats[name]) for name in names]

    def test_probes_that_come_and_go(self):
        self.begin("hot_threads", "8")
        self.assertEqual(self.say("run"), "runs\n")
        for turn in range(8):
            self.add(*NAMES)
            if turn % 4 == 3:
                self.becomes("jump", "single")
            time.sleep(0.01 * turn)
            self.told("--remove", "uprobes/pushes", "--remove", "loads", "--remove", "single")
        self.add(*NAMES)
        self.becomes("jump", "single")
        self.pause()
        out, _, _ = self.finish()
        self.assertEqual(out, "0 mistakes, interrupted\n")

    def test_the_text_is_as_before(self):
        self.begin("hot_threads", "2")
        text = self.text_of()
        self.add(*NAMES)
        self.becomes("jump", *NAMES)
        self.assertNotEqual(self.text_of(), text)
        self.told("--remove", "pushes", "--remove", "loads", "--remove", "single")
        self.assertEqual(self.text_of(), text)
        self.finish()

    def text_of(self):
        pid = harness.descendants(self.process.pid)[0]
        with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
            line = next(line for line in file if line.rstrip().endswith(self.program) and " r-xp " in line)
        begin, end = (int(word, 16) for word in line.split()[0].split("-"))
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(begin)
            return memory.read(end - begin)


class Inside(Jumps):
    def start_inside(self, how):
        self.begin("attached_inside", how)
        self.add("fills", "quiet")
        self.becomes("jump", "quiet")

    def end(self):
        out, hits, _ = self.finish("g")
        self.assertEqual(out, "0 mistakes\n")
        self.assertEqual(hits["quiet"], 3)
        return hits["fills"]

    def test_a_thread_that_leaves(self):
        """It calls the function again, and goes on in the copy."""
        self.start_inside("stays")
        self.becomes("jump", "fills")
        self.assertGreaterEqual(self.end(), 3)

    def test_a_handler(self):
        """A thread that will come back keeps the breakpoint, which says so."""
        self.start_inside("handles")
        if harness.Options.tier != "int3":
            wait_until(lambda: re.fullmatch(r"int3: the program may be executing it \(thread \d+\)", self.tiers()["fills"]),
                       "the thread that is inside")
        self.assertEqual(self.end(), 3)


if __name__ == "__main__":
    harness.main()
