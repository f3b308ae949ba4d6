# SPDX-License-Identifier: MIT
"""Every instruction that may be probed, probed: from a known machine state, alone and all at once, against the run without
probes. tests/e2e/fixtures/instructions has the instructions ("places") and lists the compared state: registers, flags, vector
state, memory, the red zone, and for faults the siginfo of a signal handler.

The first hit's registers are compared with those that the program itself saw there through a breakpoint of its own.
"""
import concurrent.futures
import functools
import os
import re
import subprocess
import unittest

import harness

FETCHES = "%ip %sp %ax %cx %flags"
WORKERS = 2
BASE = 0x400000  # of the fixture, which is not position independent
# of these, one like the other, the run of all at once is enough
VARIANTS = re.compile(r"j\w+_(8|32)_(clear|set)|rep_\d+_|movs_._|stos_._|lods_._|cmps_._|scas_._|repn?e_|jmp_r|lock_|zmm_")
BRANCH = re.compile("j|call|ret")
# Known differences.
OPEN = {
    "x87_own_address": "x87 instructions leave the address of the copy for fxsave",
}
# What jumps change, and breakpoints do not.
DIFFERENT_BY_JUMPS = {
    "lea_stack": "the hit has written to the stack below the red zone, which then becomes the program's",
}


class Place:
    def __init__(self, line):
        self.name, hits, there, recorded, self.refused = line.split("\t")
        self.hits, self.there, self.recorded = int(hits), there == "1", recorded == "1"


def left_out():
    return OPEN.keys() | (DIFFERENT_BY_JUMPS.keys() if harness.Options.tier != "int3" else set()) | differs_by_processor()


@functools.cache
def differs_by_processor():
    """sgdt and sidt show the tables of the processor that happens to run them, in a virtual machine those of its host, unless the
    kernel hides them (user-mode instruction prevention)."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        return set() if re.search(r"^flags\b.*\bumip\b", file.read(), re.M) else {"sgdt", "sidt"}


def first_hits(text):
    """The program's own record: place -> [ip, sp, ax, cx, flags]."""
    return {words[1]: [int(word, 16) for word in words[2:]]
            for words in (line.split() for line in text.decode().splitlines()) if words[0] == "hit"}


def results(text):
    """place -> what it printed"""
    return dict(line.split(" ", 1) for line in text.decode().splitlines())


class Instructions(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        harness.tool()
        cls.program = harness.fixture("instructions")
        listing = harness.run([cls.program, "list"]).stdout.decode()
        cls.places = [Place(line) for line in listing.splitlines()]
        cls.probed = [place for place in cls.places if place.there and not place.refused]
        cls.plain = harness.run([cls.program, "run"])
        assert cls.plain.returncode == 0, cls.plain

    def definition(self, place):
        return f"p:{place.name} {self.program}:probe_{place.name} {FETCHES}"

    def definitions_file(self, places):
        return self.write("list", "".join(self.definition(place) + "\n" for place in places))

    def run_probed(self, places, mode):
        return harness.run_tool([], [self.program, mode], ["-i", self.definitions_file(places)])

    def compare_output(self, plain, seen, names):
        self.assertEqual(seen.returncode, plain.returncode, seen.stderr[-2000:])
        expected, found = results(plain.stdout), results(seen.stdout)
        self.assertEqual(list(expected), list(found))
        different = {name: (expected[name], found[name]) for name in names if expected[name] != found[name]}
        self.assertEqual(different, {})

    def test_there_are_many(self):
        self.assertGreater(len(self.probed), 600)

    def test_all_at_once(self):
        seen = self.run_probed(self.probed, "run")
        self.compare_output(self.plain, seen, [place.name for place in self.places if place.name not in left_out()
                                               and place.there])
        self.assertEqual(seen.counts(), {place.name: place.hits for place in self.probed})
        own = first_hits(harness.run([self.program, "record"]).stdout)
        self.check_values(seen, own)

    def check_values(self, seen, own):
        """The first hit of each place, as the program itself saw it."""
        first = {}
        for hit in seen.hits:
            first.setdefault(hit.event, hit)
        for place in self.probed:
            if not place.recorded:
                continue
            hit = first[place.name]
            found = [int(value, 16) for value in re.findall(r"arg\d=(0x[0-9a-f]+)", hit.rest)]
            with self.subTest(place=place.name):
                self.assertEqual(found, own[place.name])
                self.assertEqual(hit.address, own[place.name][0])

    def test_without_a_stack_of_the_handlers(self):
        plain = harness.run([self.program, "bare"])
        self.assertEqual(plain.returncode, 0)
        ran = results(plain.stdout)
        places = [place for place in self.probed if place.name in ran]
        seen = self.run_probed(places, "bare")
        self.compare_output(plain, seen, ran.keys() - left_out())
        self.assertEqual(seen.counts(), {place.name: place.hits for place in places})

    def test_each_alone(self):
        expected = results(self.plain.stdout)

        def run_one(place):
            seen = harness.run_tool([self.definition(place)], [self.program, "run", place.name])
            return place, seen

        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            places = [place for place in self.probed
                      if place.name not in left_out() and not VARIANTS.match(place.name)]
            self.assertGreater(len(places), 400)
            for place, seen in pool.map(run_one, harness.share_of(places)):
                with self.subTest(place=place.name):
                    self.assertEqual(seen.returncode, 0, seen.stderr)
                    self.assertEqual(results(seen.stdout), {place.name: expected[place.name]})
                    self.assertEqual(seen.counts(), {place.name: place.hits})

    def test_while_signals_come_in(self):
        names = ["movs_many", "movs_many_backwards", "stos_many", "cmps_many", "scas_many", "lods_many", "loop_taken",
                 "call_rel32", "call_memory", "syscall_getppid", "enter_31", "zmm_gather", "fsin", "lock_xadd_rip",
                 "ret_8", "iretq", "push_rsp"]
        places = [place for place in self.probed if place.name in names]
        command = [self.program, "storm", *(place.name for place in places)]
        plain = harness.run(command)
        self.assertEqual((plain.returncode, plain.stdout), (0, b""))
        seen = harness.run_tool([], command, ["-b", "64M", "-i", self.definitions_file(places)])
        self.assertEqual((seen.returncode, seen.stdout), (0, b""), seen.stderr[-2000:])
        self.assertEqual(seen.counts(), {place.name: 500 for place in places})

    def test_the_return_from_signal_handlers(self):
        """libc's restorer, whose system call goes back to the place of the signal."""
        libc = harness.libc_of(self.program)
        with open(libc, "rb") as file:
            start = file.read().index(bytes.fromhex("48c7c00f0000000f05"))  # mov $15, %rax; syscall
        definitions = [f"p:number {libc}:{start:#x} %ax", f"p:call {libc}:{start + 7:#x} %ax:u32"]
        command = [self.program, "run", *(name for name in results(self.plain.stdout) if name not in OPEN)]
        plain = harness.run(command)
        seen = harness.run_tool(definitions, command, ["--force"])
        self.assertEqual((seen.returncode, seen.stdout), (plain.returncode, plain.stdout), seen.stderr)
        signals = plain.stdout.count(b"signal=")
        self.assertEqual(seen.counts(), {"number": signals, "call": signals})
        self.assertEqual({hit.arguments for hit in seen.hits if hit.event == "call"}, {"arg1=15"})

    def test_every_instruction_of_functions(self):
        """All of them at once: the copies run one after the other, in the order of the program."""
        functions = ["main", "state_sum", "on_signal", "machine_enter", "machine_exit"]
        lines = [line for name in functions for line in self.disassembly(name)]
        listed = self.write("list", "".join(f"p:x{address:x} {self.program}:{address - BASE:#x}\n"
                                            for address, _, _ in lines))
        command = [self.program, "run", "lea_rip", "push_rax", "cpuid", "ud2"]
        plain = harness.run(command)
        seen = harness.run_tool([], command, ["--force", "-b", "64M", "-i", listed])
        self.assertEqual((seen.returncode, seen.stdout), (plain.returncode, plain.stdout), seen.stderr[-2000:])
        following = {address: address + length for address, length, is_straight in lines if is_straight}
        self.assertGreater(len(following), 200)
        addresses = [hit.address for hit in seen.hits]
        self.assertGreater(len(addresses), 10000)
        self.assertEqual([pair for pair in zip(addresses, addresses[1:])
                          if pair[0] in following and following[pair[0]] != pair[1]], [])

    def disassembly(self, function):
        """[address, length, whether the next instruction follows]"""
        text = subprocess.check_output([harness.need("objdump"), "-dw", "--disassemble=" + function, self.program],
                                       text=True)
        found = re.findall(r"^ +([0-9a-f]+):\t((?:[0-9a-f]{2} )+) *\t(?:[a-z]+ )?(\w+)", text, re.M)
        self.assertGreater(len(found), 5, function)
        last = found[-1][0]
        return [(int(address, 16), len(code.split()), address != last and not BRANCH.match(word))
                for address, code, word in found]

    def test_refused_with_a_reason(self):
        for place in self.places:
            if not place.refused:
                continue
            with self.subTest(place=place.name):
                seen = harness.run(harness.tracer("-p", self.definition(place), "--", self.program, "run", place.name))
                self.assertEqual((seen.returncode, seen.stdout), (125, b""))
                self.assertRegex(seen.stderr.decode(), f"(cannot be probed|are no instruction): .*{place.refused}")


def saves_x87_addresses():
    """fxsave writes the x87 instruction pointer. AMD's processors do so with an exception pending only (APM volume 2, 11.4.4)."""
    with open("/proc/cpuinfo", encoding="latin-1") as file:
        return "AuthenticAMD" not in file.read()


def add_open_cases():
    for name in OPEN:
        @unittest.skipUnless(saves_x87_addresses(), "this processor's fxsave leaves the x87 addresses out")
        def test(self, name=name):
            seen = self.run_probed([place for place in self.probed if place.name == name], "run")
            self.compare_output(self.plain, seen, [name])
        setattr(Instructions, f"test_open_{name}", unittest.expectedFailure(test))


add_open_cases()

if __name__ == "__main__":
    harness.main()
