# SPDX-License-Identifier: MIT
"""Small programs that each broke the engine once (hostile_cases/*.c): compiled here, run alone and probed, compared.

cases.tsv names them: source, how it is built and run, definitions (@BIN@ the program, @LIBC@ its C library), hits
expected (EVENT=NUMBER, | between), and whether the case holds. One that is `open` fails by a known defect; when it passes it is to be marked as
holding.
"""
import os
import re
import subprocess
import unittest

import harness

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hostile_cases")
SECONDS = 90  # each takes less than two, but far longer on a crowded machine with slow system calls
SUMMARY = re.compile(rb"^uprobe-run: (?:\S+/)?(\S+) \S+: ([\d,]+) hits?(?:, lost ([\d,]+))?", re.M)
# The sandbox's first processes are sleepers that the tool may not touch.
SANDBOX = ["unshare", "-p", "-f", "--mount-proc", "sh", "-c", 'sleep 30 & sleep 30 & sleep 30 & "$@"; exit $?', "sh"]


def libc_path():
    listing = subprocess.check_output(["ldd", harness.need("sh")], text=True)
    return os.path.realpath(re.search(r"(/\S*/libc\.so\.6)", listing)[1])


class HostileCase(harness.TestCase):
    def compile(self, source, how):
        """The program's path."""
        compiler = harness.need("musl-gcc" if how.startswith("musl") else "gcc")
        program = self.path(source)
        words = [compiler, "-O1", "-g", os.path.join(CASES, source + ".c")]
        # musl-gcc leaves the header of the unwind table out
        harness.compiled(words + ["-pthread", "-ldl", "-Wl,--eh-frame-hdr"] + ["-static"] * ("static" in how), program)
        if how == "plugin":
            harness.compiled(words + ["-DPLUGIN", "-shared", "-fPIC"], program + ".so")
        return program

    def definitions(self, program, how, text):
        texts = [one.replace("@BIN@", program) for one in text.split("|")]
        if "@LIBC@" in text:
            texts = [one.replace("@LIBC@", libc_path()) for one in texts]
        if "stripped" in how:
            texts = [harness.kernel_definition(one) for one in texts]
            subprocess.run(["strip", program], check=True)
        copies = int(how[1:]) if re.fullmatch(r"x\d+", how) else 1
        return [one.replace("@N@", str(n)) for one in texts for n in range(copies)]

    def run_both(self, program, how, definitions):
        listed = self.write("list", "\n".join(definitions) + "\n")
        command = [program, program]  # its own path: some programs look for a file beside it
        traced = harness.tracer("-b", "16M", "-o", self.path("trace"), "-i", listed, "--", *command)
        if how == "sandbox":
            harness.need("unshare")
            command, traced = SANDBOX + command, SANDBOX + traced
        plain = harness.run(command, timeout=SECONDS)
        if how == "sandbox" and plain.returncode != 0:
            self.skipTest("no PID namespaces here")
        return plain, harness.run(traced, timeout=SECONDS)

    def check(self, source, how, text, expected):
        program = self.compile(source, how)
        plain, seen = self.run_both(program, how, self.definitions(program, how, text))
        self.assertEqual((seen.returncode, seen.stdout), (plain.returncode, plain.stdout), seen.stderr[:2000])
        found = {name.decode(): (hits.replace(b",", b""), lost) for name, hits, lost in SUMMARY.findall(seen.stderr)}
        for one in filter(None, expected.split("|")):
            event, number = one.split("=")
            self.assertEqual(found.get(event or "x"), (number.encode(), b""), seen.stderr[:2000])


class Cases(HostileCase):
    """With those of the table."""

    def test_signals_that_a_descriptor_does_not_show_are_said(self):
        """Only if a signal was sent: naming them for a descriptor alone has no effect."""
        for source, how, sent in (("signalfd_for_trap", "", b"3 of SIGTRAP"), ("signalfd_for_trap", "musl", b"3 of SIGTRAP"),
                                  ("signalfd_for_all", "", None)):
            with self.subTest(source=source, how=how):
                program = self.compile(source, how)
                seen = self.run_both(program, how, [f"p:x {program}:probed"])[1]
                self.assertEqual(b"a signalfd for them" in seen.stderr, sent is not None, seen.stderr)
                self.assertIn(sent or b"", seen.stderr)

    def test_own_steps_through_a_return_stub(self):
        """A step over a return ends after the call, and is seen once."""
        program = self.compile("single_steps", "")
        plain = harness.run([program])
        seen = harness.run([*harness.tracer("--return=stub", "-o", self.path("trace"), "-p",
                                            f"r:x {program}:probed"), "--", program])
        self.assertEqual((seen.returncode, seen.stdout), (0, plain.stdout), seen.stderr)
        self.assertIn(b": 1 hit\n", seen.stderr)


class OfEachTier(HostileCase):
    """These choose the tier themselves, or run without one: once is enough."""

    def test_own_steps_through_returns(self):
        """Each instruction once and in order: through jumps and their approaches, exits, chains of tail calls."""
        program = self.compile("steps_through_returns", "")
        functions = ("leaf", "outer", "either", "tail", "deep", "turns_off", "turns_on")
        definitions = [f"{kind}:{kind}_{name} {program}:{name}" for name in functions for kind in "pr"]
        hits = {"leaf": 3, "outer": 1, "either": 2, "tail": 1, "deep": 4, "turns_off": 1, "turns_on": 1}
        plain = harness.run([program])
        for tier in ("auto", "int3"):
            for returns in ("exits", "stub"):
                for wanted in (definitions, definitions[1::2]):
                    with self.subTest(tier=tier, returns=returns, count=len(wanted)):
                        listed = self.write("list", "\n".join(wanted) + "\n")
                        seen = harness.run([harness.tool(), f"--tier={tier}", f"--return={returns}", "-o", self.path("trace"),
                                            "-i", listed, "--", program])
                        self.assertEqual((seen.returncode, seen.stdout), (0, plain.stdout), seen.stderr)
                        found = {name.decode(): int(number) for name, number, _ in SUMMARY.findall(seen.stderr)}
                        self.assertEqual(found, {one[2:].split()[0]: hits[one.split(":")[-1]] for one in wanted})

    def test_a_debugger_in_the_tree_steps(self):
        """Its child has been in probed functions, and is in some: after the attach its code is its own."""
        program = self.compile("steps_its_child", "")
        listed = self.write("list", "".join(f"{kind}:{kind}_{name} {program}:{name}\n" for kind in "pr"
                                            for name in ("leaf", "waits", "middle", "tail", "outer")))
        plain = harness.run([program])
        for tier in ("auto", "int3"):
            with self.subTest(tier=tier):
                seen = harness.run([harness.tool(), f"--tier={tier}", "--return=exits", "-o", self.path("trace"), "-i", listed,
                                    "--", program])
                self.assertEqual((seen.returncode, seen.stdout), (0, plain.stdout), seen.stderr)
                self.assertIn(b"r_outer", seen.stderr)
                self.assertIn(b"is traced by another of the traced programs", seen.stderr)

    def test_a_debugger_in_the_tree_steps_and_lets_go(self):
        """At whatever instruction: nothing of a hit is left in its children, which see no signal of the agent."""
        program = self.compile("steps_and_lets_go", "")
        listing = subprocess.check_output(["objdump", "-d", "--no-show-raw-insn", program], text=True)
        addresses = []
        for function in ("scramble", "mix", "work", "main"):
            body = re.search(rf"^\w+ <{function}>:\n(.+?)\n\n", listing, re.M | re.S)
            addresses += re.findall(r"^ *(\w+):", body[1], re.M) if body else []
        listed = self.write("list", "".join(f"p {program}:0x{at} %ax +0(%di):u64\n" for at in addresses))
        for tier in ("auto", "int3"):
            with self.subTest(tier=tier):
                seen = harness.run([harness.tool(), f"--tier={tier}", "--skip-refused", "-o", self.path("trace"), "-i", listed, "--",
                                    program], timeout=SECONDS)
                self.assertEqual((seen.returncode, seen.stdout), (0, b"0 have not gone on, 0 signals\n"), seen.stderr[:2000])
                self.assertIn(b"is traced by another of the traced programs", seen.stderr)

    def test_threads_of_the_kernel(self):
        """They are not stopped, and nothing is asked of them: attaching held the program for fifteen seconds, and was refused."""
        program = self.compile("works_by_io_uring", "")
        with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            if process.stdout.readline() != b"ready\n":
                self.skipTest("no io_uring here")
            names = set()
            for task in os.listdir(f"/proc/{process.pid}/task"):
                with open(f"/proc/{process.pid}/task/{task}/comm", encoding="ascii") as file:
                    names.add(file.read()[:8])
            self.assertEqual({name for name in names if name.startswith("iou-")}, {"iou-sqp-", "iou-wrk-"})
            for tier in ("auto", "int3"):
                with self.subTest(tier=tier):
                    seen = harness.run([harness.tool(), f"--tier={tier}", "-n", "5", "-o", self.path("trace"), "-P", str(process.pid),
                                        "-p", f"p:x {program}:probed"], timeout=SECONDS)
                    self.assertEqual(seen.returncode, 0, seen.stderr)
            process.stdin.close()
            self.assertEqual(process.wait(SECONDS), 0)

    def test_syscall_user_dispatch(self):
        """The calls that attaching makes in the program ended it."""
        program = self.compile("dispatches_its_calls", "")
        with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            if process.stdout.readline() != b"ready\n":
                self.skipTest("no Syscall User Dispatch here")
            seen = harness.run([harness.tool(), "-d", "0.1", "-o", self.path("trace"), "-P", str(process.pid), "-p",
                                f"p:x {program}:probed"], timeout=SECONDS)
            process.stdin.close()
            self.assertEqual(process.wait(SECONDS), 0)
            self.assertEqual(seen.returncode, 125)
            self.assertIn(b"uses Syscall User Dispatch", seen.stderr)

    def test_a_debugger_attaches_beside_vfork(self):
        """The request waits until the child of vfork is gone: before, the agent's own breakpoints stayed."""
        program = self.compile("attached_in_vfork", "")
        plain = harness.run([program])
        for tier in ("auto", "int3"):
            with self.subTest(tier=tier):
                seen = harness.run([harness.tool(), f"--tier={tier}", "-o", self.path("trace"), "-p", f"p:x {program}:probed", "--",
                                    program], timeout=SECONDS)
                self.assertEqual((seen.returncode, seen.stdout), (0, plain.stdout), seen.stderr[:2000])

    def test_what_is_blocked_stays_blocked(self):
        """When the tracing ends before the program, and when a debugger comes or is told that it may not."""
        program = self.compile("blocks_our_signals", "")
        for words, argument in ((["-n", "1", "-p", f"p:x {program}:probed"], []),
                                (["-n", "1", "--return=stub", "-p", f"r:x {program}:probed"], []),
                                (["-p", f"p:x {program}:probed"], ["debugged"]),
                                (["--return=stub", "-p", f"r:x {program}:probed"], ["debugged"])):
            with self.subTest(words=words, argument=argument):
                plain = harness.run([program, *argument])
                seen = harness.run([harness.tool(), "-o", self.path("trace"), *words, "--", program, *argument])
                self.assertEqual((seen.returncode, seen.stdout), (plain.returncode, plain.stdout), seen.stderr[:2000])

    def test_valgrind(self):
        """It executes the program in translation, and is left alone, with a line."""
        valgrind, program = harness.need("valgrind"), self.compile("alignment_check", "")
        plain = harness.run([program])
        seen = harness.run([harness.tool(), "-o", self.path("trace"), "-p", f"p:x {program}:calls", "--", valgrind, "-q", program],
                           timeout=SECONDS)
        self.assertEqual((seen.returncode, seen.stdout), (0, plain.stdout), seen.stderr[:2000])
        self.assertIn(b"valgrind executes it in translation", seen.stderr)

    def test_signals_at_the_end_under_preload(self):
        """They come while the library waits for its helper, and wait until it is done."""
        for how in ("", "musl"):
            with self.subTest(how=how):
                program = self.compile("ends_under_alarms", how)
                seen = harness.run([program], timeout=SECONDS, env={
                    **os.environ, "LD_PRELOAD": os.path.join(os.path.dirname(harness.tool()), "libuprobe.so"),
                    "UPROBE_PROBES": f"p:x {program}:probed", "UPROBE_OUTPUT": self.path("trace")})
                self.assertEqual((seen.returncode, seen.stdout, seen.stderr), (0, b"end\n", b""))


def add_cases():
    with open(os.path.join(CASES, "cases.tsv"), encoding="ascii") as file:
        rows = [line.rstrip("\n").split("\t") for line in file if not line.startswith("#")]
    for source, how, text, expected, state in rows:
        def test(self, source=source, how=how, text=text, expected=expected):
            self.check(source, how, text, expected)
        name = "test_" + source + ("_" + how.replace("-", "_") if how else "")
        setattr(Cases, name, test if state == "holds" else unittest.expectedFailure(test))


add_cases()

if __name__ == "__main__":
    harness.main()
