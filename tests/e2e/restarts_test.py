# SPDX-License-Identifier: MIT
"""Probes in restartable sequences (rseq) that no file shows: the program computes the same, the probes in the sequence are
removed, all others go on counting, and a line says so. Traps of the program's own stay its own.
"""
import os
import re
import signal
import subprocess

import harness
import oracle
from elf_reader import Elf
from process_state import read

ROUNDS = 200
THREADS = 8
# command -> the assembly function with the sequence, and what is known of it when the kernel has aborted it
WAYS = {"stack": ("own", "sequence"), "heap": ("own", "sequence"), "data": ("own", "sequence"),
        "usual": ("usual", "sequence"), "computed": ("computed", "sequence"),
        "hidden": ("own", "functions"), "untraceable": ("computed", "object")}
WHY = {"sequence": "inside a restartable sequence (rseq) whose descriptor the program makes at run time",
       "functions": "in the functions of a restartable sequence (rseq) whose descriptor the program makes at run time "
                    "and was not found",
       "object": "in the file of a restartable sequence (rseq) whose descriptor the program makes at run time "
                 "and was not found"}


class RestartsCase(harness.TestCase):
    fixture = "restarts"

    def setUp(self):
        super().setUp()
        self.program = self.copy_of(harness.fixture(self.fixture))
        self.file = Elf(self.program)

    def definitions(self, way):
        function = WAYS[way][0]
        begin, add = self.file.symbols[f"{function}_begin"], self.file.symbols[f"{function}_add"]
        places = {"begin": begin, "middle": add - 1}
        return [*(f"p:{name} {self.program}:{self.file.offset_of_address(at):#x}" for name, at in places.items()),
                f"p:round {self.program}:each_round", f"p:other {self.program}:of_no_sequence"]

    def expected(self, *commands):
        plain = harness.run([self.program], "".join(f"{command} {ROUNDS}\n" for command in commands).encode())
        self.assertEqual(plain.returncode, 0)
        return plain.stdout

    @staticmethod
    def hits_in(errors):
        return {name: int(count.replace(",", "")) for name, count in
                re.findall(r"uprobes/(\w+) \S+: ([\d,]+) hits?", errors)}

    @staticmethod
    def removed_in(errors):
        """name of the process, probes, why"""
        lines = re.findall(r"^uprobe-run: (\S+) \(pid \d+\): (\d+) probes? removed \(([^)]*)\): (.*)$", errors, re.M)
        return [(name, sorted(names.split(", ")), why) for name, _, names, why in lines]

    @staticmethod
    def gone(way):
        names = ["begin", "middle"] + (["round", "other"] if WAYS[way][1] == "object" else [])
        return ", ".join(f"uprobes/{name}" for name in names)

    def check(self, way, errors, rounds, processes=1):
        """These probes are gone, and the others have counted every hit."""
        reach = WAYS[way][1]
        line = ("restarts", sorted(self.gone(way).split(", ")), WHY[reach])
        self.assertEqual(self.removed_in(errors), [line] * processes, errors)
        hits = self.hits_in(errors)
        # by a jump, each thread's first rounds do not abort
        self.assertEqual(hits["middle"], 0, errors)
        self.assertLess(hits["begin"], rounds)
        if reach != "object":
            self.assertEqual((hits["round"], hits["other"]), (rounds, rounds), errors)


class Launched(RestartsCase):
    def launch(self, way, *commands):
        words = [word for definition in self.definitions(way) for word in ("-p", definition)]
        seen = harness.run(harness.tracer("-o", self.path("trace"), *words, "--", self.program),
                           "".join(f"{command} {ROUNDS}\n" for command in commands).encode())
        self.assertEqual((seen.returncode, seen.stdout), (0, self.expected(*commands)), seen.stderr)
        return seen.stderr.decode()

    def test_each_way(self):
        for way in WAYS:
            with self.subTest(way):
                self.check(way, self.launch(way, f"{way} plain", f"{way} plain"), 2 * ROUNDS)

    def test_threads_that_come_at_once(self):
        for way in ("stack", "usual", "hidden"):
            with self.subTest(way):
                commands = [f"{way} threads"] * 2
                self.check(way, self.launch(way, *commands), 2 * THREADS * ROUNDS)

    def test_a_forked_child_has_breakpoints_of_its_own(self):
        errors = self.launch("stack", "stack child", "stack plain", "stack child")
        # the second child has its parent's text
        self.check("stack", errors, 3 * ROUNDS, processes=2)

    def test_two_sequences_of_one_process(self):
        errors = self.launch("stack", "stack plain", "usual plain", "stack plain")
        self.check("stack", errors, 3 * ROUNDS)

    def test_returns_of_the_function_go_on(self):
        middle = self.file.offset_of_address(self.file.symbols["own_add"] - 1)
        words = ["-p", f"p:middle {self.program}:{middle:#x}", "-p", f"r:back {self.program}:own"]
        seen = harness.run(harness.tracer("-o", self.path("trace"), *words, "--", self.program),
                           f"stack plain {ROUNDS}\n".encode())
        self.assertEqual((seen.returncode, seen.stdout), (0, self.expected("stack plain")), seen.stderr)
        self.assertEqual(self.hits_in(seen.stderr.decode()), {"middle": 0, "back": ROUNDS})

    def test_programs_without_an_area_of_libc(self):
        for name, tunables in (("restarts", "glibc.pthread.rseq=0"), ("restarts_static", "")):
            with self.subTest(name):
                self.program = self.copy_of(harness.fixture(name))
                self.file = Elf(self.program)
                words = [word for definition in self.definitions("stack") for word in ("-p", definition)]
                commands = f"stack plain {ROUNDS}\nstack threads {ROUNDS}\n".encode()
                environment = {**os.environ, "GLIBC_TUNABLES": tunables}
                seen = harness.run(harness.tracer("-o", self.path("trace"), *words, "--", self.program), commands,
                                   env=environment)
                plain = harness.run([self.program], commands, env=environment)
                self.assertEqual((seen.returncode, seen.stdout), (0, plain.stdout), seen.stderr)
                hits = self.hits_in(seen.stderr.decode())
                self.assertEqual((hits["middle"], hits["round"]), (0, (1 + THREADS) * ROUNDS), seen.stderr)
                self.assertIn(f": {WHY['sequence']}\n".encode(), seen.stderr)

    def test_a_process_that_says_so_all_the_time(self):
        """It loses its own probes; the tool still serves the other one, and nothing else happens."""
        words = [word for definition in self.definitions("stack") for word in ("-p", definition)]
        script = (f'printf "stack flood 3000\n" | {self.program} & '
                  f'printf "stack plain {ROUNDS}\nstack threads {ROUNDS}\n" | {self.program}; wait')
        seen = harness.run(harness.tracer("-o", self.path("trace"), *words, "--", harness.need("sh"), "-c", script))
        self.assertEqual(seen.returncode, 0, seen.stderr)
        answers = sorted(seen.stdout.decode().splitlines())
        self.assertEqual(answers, sorted(["ready", "ready", "stack flood 3000", f"stack plain {ROUNDS}",
                                          f"stack threads {THREADS * ROUNDS}"]), seen.stderr)
        errors = seen.stderr.decode()
        self.assertEqual(self.hits_in(errors)["round"], (1 + THREADS) * ROUNDS, errors)
        self.assertIn(f"): {WHY['object']}\n", errors)

    def test_the_kernel(self):
        """The kernel's uprobes there do not kill either."""
        oracle.require()
        for way in ("stack", "usual"):
            with self.subTest(way):
                seen = oracle.run_kernel(self.definitions(way), [self.program], f"{way} plain {ROUNDS}\n".encode())
                self.assertEqual(seen.stdout, self.expected(f"{way} plain"))


class Preloaded(RestartsCase):
    def test_each_way(self):
        for way in WAYS:
            with self.subTest(way):
                environment = {**os.environ, **harness.preloaded(
                    UPROBE_PROBES="\n".join(self.definitions(way)), UPROBE_OUTPUT=self.path(way), UPROBE_VERBOSE="1")}
                seen = harness.run([self.program], f"{way} plain {ROUNDS}\n".encode(), env=environment)
                self.assertEqual((seen.returncode, seen.stdout), (0, self.expected(f"{way} plain")), seen.stderr)
                line = f"removed ({self.gone(way)}): {WHY[WAYS[way][1]]}\n"
                # the summary may follow the end of the program
                harness.wait_until(lambda: line in read(self.path(way)), line)


class Attached(RestartsCase):
    def attached(self, way):
        program = subprocess.Popen([self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.addCleanup(program.kill)
        self.assertEqual(program.stdout.readline(), "ready\n")
        words = [word for definition in self.definitions(way) for word in ("-p", definition)]
        tool = subprocess.Popen(harness.tracer("-v", "-o", self.path("trace"), *words, "-P", str(program.pid)),
                                stderr=subprocess.PIPE, text=True)
        self.addCleanup(tool.kill)
        for line in tool.stderr:
            if line == "uprobe-run: attached\n":
                return program, tool
        raise AssertionError("not attached")

    @staticmethod
    def ask(program, command):
        program.stdin.write(f"{command} {ROUNDS}\n")
        program.stdin.flush()
        return program.stdout.readline()

    def test_each_way(self):
        for way in WAYS:
            with self.subTest(way):
                program, tool = self.attached(way)
                answers = [self.ask(program, f"{way} plain"), self.ask(program, f"{way} threads")]
                self.assertEqual("ready\n" + "".join(answers),
                                 self.expected(f"{way} plain", f"{way} threads").decode())
                tool.send_signal(signal.SIGINT)
                _, errors = tool.communicate(timeout=harness.TIMEOUT)
                self.check(way, errors, (1 + THREADS) * ROUNDS)
                self.assertEqual(self.ask(program, f"{way} plain"), answers[0])
                program.communicate(timeout=harness.TIMEOUT)
                self.assertEqual(program.returncode, 0)

    def test_a_probe_added_later_is_refused(self):
        program, tool = self.attached("stack")
        self.ask(program, "stack plain")
        place = self.file.offset_of("own_add")
        added = harness.run([harness.tool(), "-p", f"p:late {self.program}:{place:#x}", "-P", str(program.pid)])
        self.assertEqual(added.returncode, 125, added.stderr)
        self.assertIn(WHY["sequence"].encode(), added.stderr)
        self.assertEqual(self.ask(program, "stack plain"), f"stack plain {ROUNDS}\n")
        tool.send_signal(signal.SIGINT)
        tool.communicate(timeout=harness.TIMEOUT)

    def test_the_tool_is_killed(self):
        """The agent removes its breakpoints by itself."""
        for way in ("stack", "usual"):
            with self.subTest(way):
                words = [word for definition in self.definitions(way) for word in ("-p", definition)]
                tool = subprocess.Popen([harness.tool(), "--tier=int3", "-o", self.path("trace"), *words, "--",
                                         self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                self.addCleanup(tool.kill)
                self.assertEqual(tool.stdout.readline(), "ready\n")
                tool.kill()
                tool.wait()
                self.assertEqual(self.ask(tool, f"{way} threads"), f"{way} threads {THREADS * ROUNDS}\n")
                tool.stdin.close()
                self.assertEqual(tool.stdout.read(), "")


class Shown(RestartsCase):
    """A descriptor in the file's data, in no section of its own, with a signature that the program has chosen."""
    def test_places_inside_are_refused(self):
        for fixture in ("restarts", "restarts_static"):
            self.file = Elf(harness.fixture(fixture))
            for name, expected in (("begin", 125), ("middle", 125), ("add", 125), ("end", 0), ("again", 0)):
                with self.subTest(name, fixture=fixture):
                    place = self.file.offset_of_address(self.file.symbols[f"shown_{name}"])
                    seen = harness.run(harness.tracer("--dry-run", "-p", f"p:f {harness.fixture(fixture)}:{place:#x}"))
                    self.assertEqual(seen.returncode, expected, seen.stderr)
                    if expected:
                        self.assertIn(b"may be inside an rseq critical section: what looks like a descriptor of one names it", seen.stderr)

    def test_probes_beside_it_count(self):
        words = [word for place in ("shown", "each_round") for word in ("-p", f"p:{place} {self.program}:{place}")]
        for how in ("plain", "threads"):
            seen = harness.run(harness.tracer("-v", "-o", self.path("trace"), *words, "--", self.program), f"shown {how} {ROUNDS}\n".encode())
            self.assertEqual((seen.returncode, seen.stdout), (0, self.expected(f"shown {how}")), seen.stderr)
            rounds = ROUNDS * (THREADS if how == "threads" else 1)
            hits = self.hits_in(seen.stderr.decode())
            self.assertEqual(hits["each_round"], rounds, seen.stderr)
            self.assertGreaterEqual(hits["shown"], rounds)  # an aborted one begins again
            self.assertNotIn(b"removed", seen.stderr)


class OwnTraps(RestartsCase):
    fixture = "own_traps"

    def test_the_program_sees_its_own_traps(self):
        commands = b"plain 100\nrewrites 100\nlong 100\nflipped 20000\n"
        plain = harness.run([self.program], commands)
        for tunables in ("", "glibc.pthread.rseq=0"):
            environment = {**os.environ, "GLIBC_TUNABLES": tunables}
            seen = harness.run(harness.tracer("-o", self.path("trace"), "-p", f"p:round {self.program}:each_round", "--",
                                              self.program), commands, env=environment)
            self.assertEqual((seen.returncode, seen.stdout), (0, plain.stdout), seen.stderr)
            self.assertIn(b": 20,300 hits", seen.stderr)
            self.assertNotIn(b"removed", seen.stderr)


if __name__ == "__main__":
    harness.main()
