# SPDX-License-Identifier: MIT
"""Signals that interrupt hits, by jump and by breakpoint: handlers see the program before the probed instruction or
after it, with its registers, and every execution is one hit. jump_signals/ has the programs, compiled here.
"""
import os
import re
import signal
import unittest

import harness

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "jump_signals")
HITS = re.compile(rb"^uprobe-run: (?:\S+/)?(\w+) \S+: ([\d,]+) hits?", re.M)
SECONDS = 60
# What the trampoline records itself, what it leaves to the agent, what needs all flags and a string.
ARGUMENTS = {"itself": "%ax %bx", "agent": "%ax:b4@0/8 $comm", "flags": "+0(%sp):x64 %flags +0(%sp):string"}
# The same of hits that are filtered out, and of a trigger, which is run on a record that has been built.
FILTERED = {"filtered_by_registers": "%ax %bx --filter=arg1 == 0x123456789abcdef || arg2 == 0x123456789abcdef",
            "filtered_by_the_record": "%ax w=+0(%sp):x64 --filter=w == 1 || cpu < 0",
            "filtered_by_the_agent": "c=$comm --filter=c == \"nothing\" || comm ~ \"n*y\"",
            "triggered": "%ax --trigger=traceoff if arg1 == 0x123456789abcdef"}
WITHOUT_RSEQ = {**os.environ, "GLIBC_TUNABLES": "glibc.pthread.rseq=0"}
ODD_FLAGS = "ed7"  # all arithmetic ones, and the direction flag


class JumpSignals(harness.TestCase):
    def compile(self, source, *options):
        program = self.path(source + "".join(options).replace("-", "_"))
        words = [harness.need("gcc"), "-O1", "-g", *options, os.path.join(SOURCES, source + ".c"), "-pthread"]
        return program if os.path.exists(program) else harness.compiled(words, program)

    def traced(self, tier, definitions, command):
        options = [word for one in definitions for word in ("-p", *re.split(r" (?=--)", one))]
        return [harness.tool(), "--tier=" + tier, "-b", "1M", "-o", "/dev/null", *options, "--", *command]

    def hits(self, stderr):
        return {name.decode(): int(number.replace(b",", b"")) for name, number in HITS.findall(stderr)}

    def interrupt(self, way, arguments, number, env, *options):
        """A signal at every instruction of a hit by jump. `way`: how the stepper finds them."""
        subject, stepper = self.compile("subject", *options), self.compile("stepper")
        place = "visit_site" + ("+4" if "-DAPPROACH" in options else "")
        definitions = [f"p:x {subject}:{place} {arguments}", f"p:y {subject}:handled"]
        command = [stepper, way, str(int(number)), *self.traced("jump", definitions, [subject, ODD_FLAGS])]
        seen = harness.run(command, env=env, timeout=SECONDS)
        if seen.returncode == harness.SKIPPED:
            self.skipTest("no hardware breakpoints here")
        said = (seen.stdout + seen.stderr)[:3000]
        self.assertEqual(seen.returncode, 0, said)
        found = re.search(rb"sent (\d+)\nvisits (\d+) signals (\d+) "
                          rb"bad: places (\d+) registers (\d+) results (\d+) red zone (\d+)\n", seen.stdout)
        self.assertTrue(found, said)
        sent, visits, signals, *bad = map(int, found.groups())
        self.assertEqual(bad, [0, 0, 0, 0], said)
        self.assertEqual(signals, sent)
        self.assertGreater(sent, 20)
        self.assertEqual(self.hits(seen.stderr), {"x": visits, "y": sent}, said)

    def interrupt_mask(self, way, number, definition):
        """The same of a change of the mask, to which the agent comes by jump."""
        subject, stepper = self.compile("mask"), self.compile("stepper")
        command = [stepper, way, str(int(number)), *self.traced("auto", [definition.format(subject)], [subject])]
        seen = harness.run(command, timeout=SECONDS)
        if seen.returncode == harness.SKIPPED:
            self.skipTest("no hardware breakpoints here")
        said = (seen.stdout + seen.stderr)[:3000]
        self.assertEqual(seen.returncode, 0, said)
        found = re.search(rb"sent (\d+)\nvisits \d+ signals (\d+) bad: places (\d+) registers (\d+) results (\d+)", seen.stdout)
        self.assertTrue(found, said)
        sent, signals, *bad = map(int, found.groups())
        self.assertEqual((bad, signals), ([0, 0, 0], sent), said)
        self.assertGreater(sent, 20)

    def check_timers(self, tier, arguments, *options):
        program = self.compile("timers", *options)
        place = "probed_site" + ("+9" if "-DAPPROACH" in options else "")
        seen = harness.run(self.traced(tier, [f"p:x {program}:{place} {arguments}"], [program]), timeout=SECONDS)
        said = (seen.stdout + seen.stderr)[:3000]
        self.assertEqual(seen.returncode, 0, said)
        executed, lost_callers = map(int, re.findall(rb"\d+", seen.stdout))
        self.assertEqual(self.hits(seen.stderr), {"x": executed}, said)
        self.assertEqual(lost_callers, 0)

    def check_no_stack(self, tier, arguments):
        program = self.compile("no_stack")
        seen = harness.run(self.traced(tier, [f"p:x {program}:visit_site {arguments}"], [program]), timeout=SECONDS)
        self.assertEqual((seen.returncode, seen.stdout), (0, b"200 executed, 0 faults\n"), seen.stderr)
        self.assertEqual(self.hits(seen.stderr), {"x": 200})


def add_cases():
    def add(name, check, *words):
        setattr(JumpSignals, "test_" + name, lambda self: check(self, *words))
    for kind, arguments in ARGUMENTS.items():
        for way in ("steps", "breaks"):
            check, place = JumpSignals.interrupt, f"{way}_{kind}"
            add(place, check, way, arguments, signal.SIGUSR1, None)
            add(place + "_several", check, way, arguments, signal.SIGUSR1, None, "-DSEVERAL")
            add(place + "_approach", check, way, arguments, signal.SIGUSR1, None, "-DAPPROACH")
            add(place + "_approach_without_rseq", check, way, arguments, signal.SIGUSR1, WITHOUT_RSEQ, "-DAPPROACH")
            add(place + "_without_rseq", check, way, arguments, signal.SIGUSR1, WITHOUT_RSEQ)
        add(f"timers_{kind}", JumpSignals.check_timers, "jump", arguments)
        add(f"timers_several_{kind}", JumpSignals.check_timers, "jump", arguments, "-DSEVERAL")
        add(f"timers_approach_{kind}", JumpSignals.check_timers, "jump", arguments, "-DAPPROACH")
        add(f"timers_breakpoint_{kind}", JumpSignals.check_timers, "int3", arguments)
        for tier in ("jump", "int3"):
            add(f"no_stack_{tier}_{kind}", JumpSignals.check_no_stack, tier, arguments)


    for kind, arguments in FILTERED.items():
        for way in ("steps", "breaks"):
            add(f"{way}_{kind}", JumpSignals.interrupt, way, arguments, signal.SIGUSR1, None)
        add(f"steps_{kind}_without_rseq", JumpSignals.interrupt, "steps", arguments, signal.SIGUSR1, WITHOUT_RSEQ)
        add(f"timers_{kind}", JumpSignals.check_timers, "jump", arguments)
        add(f"no_stack_{kind}", JumpSignals.check_no_stack, "jump", arguments)
    for way in ("steps", "breaks"):
        for probed, definition in (("file", "p:x {}:handle"), ("other_file", "p:x libc:getpriority")):
            add(f"{way}_mask_in_probed_{probed}", JumpSignals.interrupt_mask, way, signal.SIGUSR1, definition)
            add(f"{way}_mask_in_probed_{probed}_sent_fault", JumpSignals.interrupt_mask, way, signal.SIGBUS, definition)
    for way in ("steps", "breaks"):
        add(way + "_sent_fault", JumpSignals.interrupt, way, ARGUMENTS["itself"], signal.SIGBUS, None)
        add(way + "_sent_fault_approach", JumpSignals.interrupt, way, ARGUMENTS["itself"], signal.SIGBUS, None, "-DAPPROACH")


add_cases()

if __name__ == "__main__":
    harness.main()
