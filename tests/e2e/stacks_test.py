"""Stacks behind records: which hits have one, and what is in it; and this machine's kernel on both."""
import re
import subprocess

import elf_reader
import harness
import oracle

EVENT = "hit n=%di:s32"
STACK = r": <user stack trace>\n((?: => .*\n)+)"


def stacks(text):
    """Of each record its n, and the names of its frames; None: it has no stack."""
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
            self.assertRegex(frames[-1], r"^/.*libc\S*\[\+0x\w+\]$|^__libc_start\w+\+0x\w+/0x\w+$")

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
        """A signal's frame has no link of its own: the chain goes on behind it."""
        found = stacks(self.run_tool("stacktrace", "signals", "3000"))
        for n, frames in found:
            expected = ["hit", "on_alarm"] if n < 0 else ["hit", "inner", "outer", "main"]
            self.assertEqual(names(frames)[:len(expected)], expected)

    def test_what_is_lost_is_counted(self):
        text = self.run_tool("stacktrace", "threads", "4", "3000", options=("-b", "8K"))
        lost = re.search(r": 12,000 hits, lost ([\d,]+) \(", self.summary)
        self.assertTrue(lost, self.summary)
        self.assertEqual(len(stacks(text)) + int(lost[1].replace(",", "")), 12000)


class Live(Stacks):
    """The kernel shows its own stack behind an event; the user's, of every event, if it is asked to."""
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
        parts = [re.match(r"(\w+)\+0x(\w+)/", frame) for frame in frames]
        return [base + elf.offset_of(part[1]) + int(part[2], 16) for part in parts if part and not part[1].startswith("__libc")]

    def test_the_same_addresses(self):
        """Behind `push %rbp; mov %rsp,%rbp` both follow the same chain; at the beginning the kernel misses the caller."""
        ours, kernels = self.our_frames("outer+4 n=%di:s32"), self.kernel_frames("outer+4 n=%di:s32")
        self.assertEqual(ours, kernels[:len(ours)])
        self.assertGreaterEqual(len(ours), 2)
        ours, kernels = self.our_frames(EVENT), self.kernel_frames(EVENT)
        self.assertEqual([ours[0], *ours[2:]], kernels[:len(ours) - 1])


if __name__ == "__main__":
    harness.main()
