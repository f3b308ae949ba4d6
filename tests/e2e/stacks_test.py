# SPDX-License-Identifier: MIT
"""Stacks of records: the hits with a stack, and its frames; and this machine's kernel on both."""
import os
import re
import subprocess

import elf_reader
import harness
import oracle

EVENT = "hit n=%di:s32"
STACK = r": <user stack trace>\n((?: => .*\n)+)"


def stacks(text):
    """For each record its n, and the names of its frames; None: it has no stack."""
    found = re.findall(r": \w+: \(0x[^)]*\) n=(-?\d+)\n(?:[^\n]*" + STACK + ")?", text)
    return [(int(n), re.findall(r" => (.*)\n", frames) or None) for n, frames in found]


def names(frames):
    return [re.sub(r"\+0x.*", "", frame) for frame in frames]


class Stacks(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.program = self.copy_of(harness.fixture("counted"))

    def run_tool(self, trigger, *calls, event=EVENT, options=()):
        done = harness.run([*harness.tracer("-o", self.path("trace"), "-b", "16M"), "-p", f"p:t/e {self.program}:{event}",
                            f"--trigger={trigger}", *options, "--", self.program, *calls], before_exec=harness.fixed_layout)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.summary = done.stderr.decode()
        with open(self.path("trace"), encoding="latin-1") as file:
            return file.read()


class Frames(Stacks):
    def test_callers(self):
        found = stacks(self.run_tool("stacktrace", "calls", "3"))
        self.assertEqual([n for n, _ in found], [0, 1, 2])
        for _, frames in found:
            self.assertEqual(names(frames)[:4], ["hit", "inner", "outer", "main"])
            self.assertRegex(frames[0], r"^hit\+0x0/0x\w+$")
            self.assertRegex(frames[-1], r"^_start\+0x\w+/0x\w+$")

    def test_the_line_in_front_is_the_records(self):
        text = self.run_tool("stacktrace", "calls", "2")
        records = re.findall(r"^( *counted-\d+ +\[\d+\] \.{5} +[\d.]+: )(e: \(|<user)", text, re.M)
        self.assertEqual([what for _, what in records], ["e: (", "<user"] * 2)
        self.assertEqual(records[0][0], records[1][0])
        self.assertEqual(records[2][0], records[3][0])

    def test_returns(self):
        done = harness.run([*harness.tracer("-o", "-"), "-p", f"r:t/e {self.program}:inner n=entry($arg1):s32",
                            "--trigger=stacktrace", "--", self.program, "calls", "2"])
        self.assertEqual([names(frames)[:2] for _, frames in stacks(done.stdout.decode())], [["outer", "main"]] * 2)

    def test_threads(self):
        found = stacks(self.run_tool("stacktrace if n == 7", "threads", "8", "200"))
        self.assertEqual(len(found), 1600)
        for n, frames in found:
            self.assertEqual(names(frames)[:4] if frames else frames,
                             ["hit", "inner", "outer", "thread_main"] if n == 7 else None)

    def test_handlers(self):
        """A signal's frame has no link of its own: the chain goes on after it."""
        found = stacks(self.run_tool("stacktrace", "signals", "3000"))
        for n, frames in found:
            expected = ["hit", "on_alarm"] if n < 0 else ["hit", "inner", "outer", "main"]
            self.assertEqual(names(frames)[:len(expected)], expected)

    def test_what_is_lost_is_counted(self):
        text = self.run_tool("stacktrace", "threads", "4", "3000", options=("-b", "8K"))
        lost = re.search(r": 12,000 hits, lost ([\d,]+) \(", self.summary)
        self.assertTrue(lost, self.summary)
        self.assertEqual(len(stacks(text)) + int(lost[1].replace(",", "")), 12000)


class Tables(harness.TestCase):
    """Code without frame pointers, compared with the program's own unwinder (glibc's) at the same moment."""
    JOBS = ("sort", "signal", "fault", "throw", "aligned", "winds", "context", "deep", "thread")

    def setUp(self):
        super().setUp()
        self.elves = {}
        self.libc_path = None

    def place_of(self, line, program):
        """FILE+OFFSET of a line of a stack."""
        found = re.fullmatch(r"(/.*|\[vdso\])\[\+0x(\w+)\]", line)
        if found:
            file = os.path.realpath(found[1]) if found[1].startswith("/") else found[1]
            return f"{file}+{int(found[2], 16):#x}"
        if line.startswith("0x"):
            return line
        name, distance, size = re.fullmatch(r"(.+)\+0x(\w+)/0x(\w+)", line).groups()
        elf = self.elf(program)
        if name not in elf.symbols:
            elf = self.libc(program)
        begin = elf.offset_of(name) if name in elf.symbols else elf.named_by_debug_file(name, int(size, 16))
        return f"{os.path.realpath(elf.path)}+{begin + int(distance, 16):#x}"

    def libc(self, program):
        if self.libc_path is None:
            self.libc_path = harness.libc_of(program)
        return self.elf(self.libc_path)

    def elf(self, path):
        if path not in self.elves:
            self.elves[path] = elf_reader.Elf(path)
        return self.elves[path]

    def run_jobs(self, name, definitions, *jobs, options=()):
        """The stacks of the trace, and the program's own, as lists of places; each begins with its number, None: not known."""
        program = self.copy_of(harness.fixture(name))
        probes = [word for definition in definitions for word in ("-p", definition.format(program), "--trigger=stacktrace")]
        done = harness.run([*harness.tracer("-o", self.path("trace"), "-b", "16M"), *options, *probes, "--", program, *jobs])
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("trace"), encoding="latin-1") as file:
            found = re.findall(r"\d: (\w+): \(0x[^)]*\)(?: n=(-?\d+))?\n[^\n]*" + STACK, file.read())
        ours = [(event, int(n) if n else None, [self.place_of(line, program) for line in re.findall(r" => (.*)\n", frames)])
                for event, n, frames in found]
        own = [(int(n), frames.split()) for n, frames in re.findall(r"^(-?\d+):(.*)$", done.stdout.decode(), re.M)]
        return ours, own

    def hit_of(self, name):
        """The place of hit() in a fixture, which a stripped one does not show."""
        return f"{elf_reader.Elf(harness.fixture(name.removesuffix('_stripped'))).offset_of('hit'):#x}"

    def compare(self, name, *jobs):
        ours, own = self.run_jobs(name, ["p:t/e {}:" + self.hit_of(name) + " n=%di:s32"], *jobs)
        self.assertEqual([n for _, n, _ in ours], [n for n, _ in own])
        self.assertGreaterEqual(len(own), len(jobs))
        for (_, n, places), (_, expected) in zip(ours, own):
            with self.subTest(name=name, n=n):
                self.assertEqual(places[1:], expected[1:])

    def test_as_the_program_itself(self):
        self.compare("stacks", *self.JOBS)

    def test_with_frame_pointers(self):
        self.compare("stacks_linked", *self.JOBS)

    def test_stripped(self):
        self.compare("stacks_stripped", *self.JOBS)

    def test_static(self):
        self.compare("stacks_static", *(job for job in self.JOBS if job != "context"))

    def test_wherever_a_signal_comes(self):
        """Most of these are in the vDSO, which is no file, in a function of a name that libc has as well."""
        ours, own = self.run_jobs("stacks", ["p:t/e {}:hit"], "clock")
        self.assertGreaterEqual(len(own), 200)
        self.assertEqual(len(ours), len(own))
        libc = os.path.realpath(self.libc(harness.fixture("stacks")).path)
        in_vdso = 0
        for (_, _, places), (_, expected) in zip(ours, own):
            self.assertEqual(len(places), len(expected))
            for place, known in zip(places[1:], expected[1:]):
                in_vdso += known.startswith("[vdso]")
                if known.startswith("[vdso]"):
                    self.assertTrue(place.startswith((libc, "[vdso]")), place)
                else:
                    self.assertEqual(place, known)
        self.assertGreater(in_vdso, 0)

    def test_after_a_return(self):
        """The registers are those that the caller goes on with."""
        by_exit, own = self.run_jobs("stacks", ["r:t/e {}:leads n=$retval:s32"], *self.JOBS)
        expected = [frames[2:] for n, frames in own if n not in (11, 12)]
        self.assertEqual([places for _, _, places in by_exit], expected)
        by_stub, _ = self.run_jobs("stacks", ["r:t/e {}:leads n=$retval:s32"], *self.JOBS, options=("--return=stub",))
        self.assertEqual([places for _, _, places in by_stub], expected)

    def test_through_return_stubs(self):
        """A stub's return address on the stack shows as the address for which it stands."""
        definitions = ["p:t/e {}:hit n=%di:s32", "r:t/a {}:leads", "r:t/b {}:aligned", "r:t/c {}:descends"]
        _, own = self.run_jobs("stacks", definitions[:1], *self.JOBS)
        ours, _ = self.run_jobs("stacks", definitions, *self.JOBS, options=("--return=stub",))
        hits = [(n, places[1:]) for event, n, places in ours if event == "e"]
        self.assertEqual(hits, [(n, frames[1:]) for n, frames in own])

    def test_at_each_instruction(self):
        """Before the prologue, between its pushes, after the pops: the callers are the same."""
        harness.need("objdump")
        text = subprocess.run(["objdump", "-d", "--disassemble=winds", harness.fixture("stacks")], check=True, capture_output=True,
                              text=True).stdout
        addresses = [int(address, 16) for address in re.findall(r"^ +(\w+):\t", text, re.M)]
        self.assertGreater(len(addresses), 30)
        definitions = [f"p:t/e{i} {{}}:winds+{address - addresses[0]}" for i, address in enumerate(addresses)]
        ours, own = self.run_jobs("stacks", definitions, "winds")
        self.assertGreater(len({event for event, _, _ in ours}), 30)
        for event, _, places in ours:
            self.assertEqual(places[1:], own[0][1][2:], event)

    def test_beyond_what_is_copied(self):
        """A stack that is too deep is shorter; the recorded part is right. Frame pointers go on where they exist."""
        for name, least in (("stacks", 25), ("stacks_linked", 60)):
            ours, own = self.run_jobs(name, ["p:t/e {}:hit"], "deeper")
            (_, _, places), (_, expected) = ours[0], own[0]
            self.assertEqual(places[1:], expected[1:len(places)])
            self.assertGreater(len(places), least)
            self.assertLess(len(places), len(expected))

    def test_an_alternate_stack(self):
        """Nothing is copied of the stack that the handler has left: the interrupted frame is the last."""
        ours, own = self.run_jobs("stacks", ["p:t/e {}:hit"], "altstack")
        (_, _, places), (_, expected) = ours[0], own[0]
        self.assertEqual(places[1:], expected[1:len(places)])
        self.assertEqual(len(places), 5)

    def test_through_generated_code(self):
        """It has no tables: its caller is the next linked frame, and the tables go on from there."""
        ours, own = self.run_jobs("stacks", ["p:t/e {}:hit"], "generated", "sort")
        (_, _, places), (_, _, plain) = ours
        self.assertEqual(places[1], own[0][1][1])
        self.assertRegex(places[2], "^0x[0-9a-f]+015$")
        self.assertEqual(len(places), 8)
        self.assertEqual(places[-3:], plain[-3:])
        self.assertEqual(places[-3:], own[1][1][-3:])

    def test_a_child_that_becomes_another_program(self):
        """Its earlier records keep their values."""
        self.compare("stacks", "exec")

    def test_in_small_rings(self):
        """No more than a quarter of the ring is copied of a stack."""
        ours, own = self.run_jobs("stacks", ["p:t/e {}:hit"], "deep", options=("-b", "8K"))
        (_, _, places), (_, expected) = ours[0], own[0]
        self.assertEqual(places[1:], expected[1:len(places)])
        self.assertGreater(len(places), 5)


class Live(Stacks):
    """The kernel shows its own stack after an event; the user's, of every event, if it is asked to."""
    SCENARIOS = ("stacktrace", "stacktrace:2", "stacktrace if n > 1", "stacktrace:1 if n > 1", "stacktrace:0")

    def setUp(self):
        super().setUp()
        oracle.require()

    def kernel_hits(self, trigger):
        with oracle.Oracle([f"p:e {self.program}:{EVENT}"], everybody=True) as kernel:
            file = f"{kernel.instance}/events/{kernel.group}/e/trigger"
            oracle.put(file, trigger)
            subprocess.run([self.program, "calls", "5"], check=True, timeout=60)
            text = kernel.read_trace()
            oracle.put(file, "!stacktrace")
        return [(int(n), bool(stack)) for n, stack in re.findall(r" n=(\d+)\n(.*: <stack trace>\n)?", text)]

    def test_which_hits(self):
        for trigger in self.SCENARIOS:
            with self.subTest(trigger=trigger):
                expected = self.kernel_hits(trigger)
                self.assertEqual(len(expected), 5)
                seen = stacks(self.run_tool(trigger, "calls", "5"))
                self.assertEqual([(n, frames is not None) for n, frames in seen], expected)

    def kernel_frames(self, event):
        with oracle.Oracle([f"p:e {self.program}:{event}"], everybody=True) as kernel:
            oracle.put(f"{kernel.instance}/options/userstacktrace", "1")
            subprocess.run([self.program, "calls", "1"], check=True, timeout=60, preexec_fn=harness.fixed_layout)
            text = kernel.read_trace()
            oracle.put(f"{kernel.instance}/options/userstacktrace", "0")
        return [int(address, 16) for address in re.findall(r" => .*<([0-9a-f]+)>", text)]

    def our_frames(self, event):
        text = self.run_tool("stacktrace", "calls", "1", event=event)
        elf = elf_reader.Elf(self.program)
        place = re.match(r"(\w+)(?:\+(\d+))?", event)
        base = int(re.search(r": e: \(0x(\w+)\)", text)[1], 16) - elf.offset_of(place[1]) - int(place[2] or "0")
        [(_, frames)] = stacks(text)
        parts = [re.match(r"(\w+)\+0x(\w+)/", frame) for frame in frames[:names(frames).index("main") + 1]]
        return [base + elf.offset_of(part[1]) + int(part[2], 16) for part in parts]

    def test_the_same_addresses(self):
        """As far as the chain of frame pointers leads, which the kernel follows; at the beginning it misses the caller."""
        ours, kernels = self.our_frames("outer+4 n=%di:s32"), self.kernel_frames("outer+4 n=%di:s32")
        self.assertEqual(ours, kernels[:len(ours)])
        self.assertGreaterEqual(len(ours), 2)
        ours, kernels = self.our_frames(EVENT), self.kernel_frames(EVENT)
        self.assertEqual([ours[0], *ours[2:]], kernels[:len(ours) - 1])


if __name__ == "__main__":
    harness.main()
