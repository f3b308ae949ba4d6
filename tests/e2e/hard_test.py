# SPDX-License-Identifier: MIT
"""Functions whose first bytes leave a jump little room (fixtures/hard), probed in every tier, each place alone and many
together: their results are those without probes, every hit is counted, and a place gets the expected tier, or
the expected reason why it does not.
"""
import concurrent.futures
import random
import re
import subprocess
import unittest

import harness
import oracle

BASE = 0x400000  # of the fixture, which is not position independent
WORKERS = 2
TIERS = ("int3", "auto")
STORM = 1000  # times the rounds of a run
SUBSETS = 12 if harness.LONG else 4  # random ones, of all instructions
# It compares its own code with what it was.
READS_ITSELF = "reads_own_code"
INNER = "inner_door"  # a part of another one
HELPERS = ["own_return", "hot_part", "save_place", "go_back", "throws"]  # not called by main.c
# The kernel counts these right: no prefixes that it refuses, nothing that it steps through (a string instruction counts once
# for each turn).
BESIDE_THE_KERNEL = ("head_1_loop head_4_entry back_to_entry_entry small_1_traps_entry first_jcc_entry tail_by_jmp_entry "
                     "crowd_nop_ret_entry own_return_entry call_last_entry marked_entry table_into_entry_add hot_part_entry "
                     "red_zone_sum carries_third vectors_move throws_entry").split()


class Place:
    def __init__(self, line):
        self.name, offset, hits, self.tier = line.split("\t")
        self.offset, self.hits = int(offset, 16), int(hits)

    def definition(self, program):
        return f"p:{self.name} {program}:{self.offset:#x}"


class HardCase(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        harness.tool()
        cls.program = harness.fixture("hard")
        listing = harness.run([cls.program, "list"]).stdout.decode()
        plain = harness.run([cls.program, "run"])
        assert plain.returncode == 0, plain
        cls.plain = plain.stdout
        ran = set(re.findall(rb"^(\w+) ", plain.stdout, re.M))
        # what the processor lacks does not run
        cls.places = [place for place in map(Place, listing.splitlines())
                      if not place.name.startswith(("vectors_", "wide_vectors_")) or
                      place.name.rpartition("_")[0].encode() in ran]

    def run_probed(self, definitions, tier, mode="run"):
        listed = self.write(f"list{random.random()}", "".join(definition + "\n" for definition in definitions))
        seen = harness.run_tool([], [self.program, mode], [f"--tier={tier}", "-v", "-b", "16M", "-i", listed])
        self.assertEqual((seen.returncode, seen.stdout), (0, self.plain if mode == "run" else b""), seen.stderr[-2000:])
        return seen

    def dry_run(self, places, tier):
        """place -> its line about the tier"""
        listed = self.write(f"list{random.random()}", "".join(p.definition(self.program) + "\n" for p in places))
        seen = harness.run([harness.tool(), f"--tier={tier}", "--dry-run", "-i", listed])
        return seen.returncode, re.findall(r"^ +tier +(.*)", seen.stdout.decode(), re.M)

    def check(self, places, tier, mode="run", times=1):
        seen = self.run_probed([place.definition(self.program) for place in places], tier, mode)
        self.assertEqual(seen.counts(), {place.name: place.hits * times for place in places if place.hits})
        return seen


class Hard(HardCase):
    def test_there_are_many(self):
        self.assertGreater(len(self.places), 150)
        self.assertGreater(sum(place.tier == "jump" for place in self.places), 120)

    def test_each_alone(self):
        def run_one(place):
            seen = self.check([place], "auto")
            jumps = int(place.tier == "jump")
            self.assertIn(f"tiers: {jumps} jump, {1 - jumps} int3\n", seen.stderr.decode())

        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            for place, done in [(place, pool.submit(run_one, place)) for place in harness.share_of(self.places)]:
                with self.subTest(place=place.name):
                    done.result()

    def test_all_that_can_be_jumps_at_once(self):
        _, tiers = self.dry_run(self.places, "auto")
        self.assertEqual(len(tiers), len(self.places))
        places = [place for place, tier in zip(self.places, tiers) if tier.startswith("jump")]
        self.assertGreater(len(places), 60)
        seen = self.check(places, "jump")
        self.assertRegex(seen.stderr, rb"(?m)^uprobe-run: tiers: %d jump, 0 int3$" % len(places))

    def test_jump_or_nothing(self):
        """If no jump is possible --tier=jump says why, and the program does not start."""
        for place in self.places:
            if place.tier == "jump":
                continue
            with self.subTest(place=place.name):
                seen = harness.run([harness.tool(), "--tier=jump", "-p", place.definition(self.program), "--", self.program,
                                    "run"])
                self.assertEqual((seen.returncode, seen.stdout), (125, b""))
                self.assertIn(place.tier, seen.stderr.decode())

    def test_beside_the_kernel(self):
        places = [place for place in self.places if place.name in BESIDE_THE_KERNEL]
        self.assertGreater(len(places), 12)
        copy = self.copy_of(self.program)
        definitions = [place.definition(copy) for place in places]
        expected = oracle.run_kernel(definitions, [copy, "run"])
        self.assertEqual(expected.stdout, self.plain)
        for tier in TIERS:
            with self.subTest(tier=tier):
                seen = harness.run_tool(definitions, [copy, "run"], [f"--tier={tier}"])
                self.assertEqual(seen.counts(), expected.counts())


class EveryInstruction(HardCase):
    """All places where an instruction starts, known to the fixture or not; int3, where no probe minds another, counts them."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        listing = subprocess.check_output([harness.need("nm"), "-S", cls.program], text=True)
        cls.symbols = {name: int(address, 16) + int(size, 16)
                       for address, size, name in re.findall(r"^(\w+) (\w+) [Tt] (\w+)$", listing, re.M)}  # ends
        cls.functions = [cls.instructions(name) for name in re.findall(r"^(\w+) ", cls.plain.decode(), re.M) + HELPERS
                         if name not in (READS_ITSELF, INNER)]
        cls.expected = None

    @classmethod
    def instructions(cls, name):
        """Where they start in the file."""
        text = subprocess.check_output([harness.need("objdump"), "-dw", f"--disassemble={name}", cls.program], text=True)
        end = cls.symbols[name]
        found = [int(address, 16) for address in re.findall(r"^ +([0-9a-f]+):\t", text, re.M)]
        return [address - BASE for address in found if address < end]

    def definitions(self, offsets):
        return [f"p:x{offset:x} {self.program}:{offset:#x}" for offset in offsets]

    def counts(self):
        """event -> hits, of all"""
        if EveryInstruction.expected is None:
            everywhere = self.definitions(offset for function in self.functions for offset in function)
            EveryInstruction.expected = self.run_probed(everywhere, "int3").counts()
        return EveryInstruction.expected

    def check_offsets(self, offsets, tier="auto"):
        definitions = self.definitions(offsets)
        counts = self.run_probed(definitions, tier).counts()
        events = {definition.split()[0][2:] for definition in definitions}
        self.assertEqual(counts, {event: hits for event, hits in self.counts().items() if event in events})

    def test_all_at_once(self):
        self.assertGreater(len(self.counts()), 600)
        for place in self.places:
            if READS_ITSELF not in place.name:
                self.assertEqual(self.counts().get(f"x{place.offset:x}", 0), place.hits, place.name)
        self.check_offsets([offset for function in self.functions for offset in function])

    def test_the_first_ones(self):
        for chosen in (slice(1), slice(1, 2), slice(2, 3), slice(2), slice(3), slice(1, 3), slice(0, 3, 2)):
            with self.subTest(chosen=chosen):
                self.check_offsets([offset for function in self.functions for offset in function[chosen]])

    def test_every_seventh(self):
        for first in range(7):
            with self.subTest(first=first):
                self.check_offsets([offset for function in self.functions for offset in function[first::7]])

    def test_random_ones(self):
        for seed in range(SUBSETS):
            with self.subTest(seed=seed):
                chance = random.Random(seed)
                self.check_offsets([offset for function in self.functions for offset in function
                                    if chance.randrange(6) <= seed % 3])


def add_tiers():
    for tier in TIERS:
        def test(self, tier=tier):
            self.check(self.places, tier)

        def storm(self, tier=tier):
            self.check(self.places[::3], tier, "storm", STORM)
        setattr(Hard, f"test_all_at_once_{tier}", test)
        setattr(Hard, f"test_while_signals_come_in_{tier}", storm)


add_tiers()

if __name__ == "__main__":
    harness.main()
