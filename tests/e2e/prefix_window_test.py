# SPDX-License-Identifier: MIT
"""Jumps that begin before the probed place, in the instructions that lead to it (prefix_window/places.c has such places, compiled
here): every hit is counted, with the registers that a breakpoint shows, also while the jump comes, goes or becomes an int3."""
import os
import random
import re
import shutil
import subprocess
import tempfile

import harness

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "prefix_window", "places.c")
ARGUMENTS = "%ax %cx %dx %di %r8 %r9 %flags +0(%si):u64"
ALL_FLAGS = 0x8d5  # without RF and IF, which the kernel sets at will


class Approach(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.program = self.path("places")
        words = [harness.need("gcc"), "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-no-pie", "-pthread", SOURCE, "-o", self.program]
        subprocess.run(words, check=True, capture_output=True)
        listed = subprocess.run([self.program, "list"], check=True, capture_output=True, text=True).stdout.split("\n")
        self.places = {name: (int(at), int(lead)) for name, at, lead in (line.split() for line in listed if line)}
        self.assertEqual(len(self.places), 6)

    def definition(self, name, arguments="", before=0, event=None):
        return f"p:{event or name} {self.program}:walk+{self.places[name][0] - before} {arguments}"

    def run_traced(self, definitions, words, tier="jump", **more):
        options = [word for one in definitions for word in ("-p", one)]
        trace = self.path("trace")
        command = [shutil.which("setarch"), "-R", *harness.tracer("--tier=" + tier, "-o", trace, "--profile", *options)]
        seen = harness.run([*command, "--", self.program, *words], **more)
        self.assertEqual(seen.returncode, 0, seen.stderr)
        hits = {name: int(number) for name, number in re.findall(r"^  \S+ +(\S+) +(\d+) +\d+$", seen.stderr.decode(), re.M)}
        with open(trace, encoding="ascii") as file:
            return seen, hits, harness.parse_trace(file.read())

    def arguments_of(self, hits):
        """The values of a hit, without the flags that are not the program's."""
        def masked(found):
            return f"{found[1]}{int(found[2], 16) & ALL_FLAGS:#x}"
        return [(hit.event, re.sub(r"(arg7=)(0x[0-9a-f]+)", masked, hit.arguments)) for hit in hits]


class Alone(Approach):
    def test_the_same_as_by_breakpoint(self):
        native = harness.run([self.program, "walk", "7"]).stdout
        for name in self.places:
            shown = {}
            for tier in ("jump", "int3"):
                seen, hits, trace = self.run_traced([self.definition(name, ARGUMENTS)], ["walk", "7"], tier)
                self.assertEqual(seen.stdout, native, name)
                self.assertEqual(hits, {name: 1 if name == "return" else 7})
                shown[tier] = self.arguments_of(trace)
            self.assertEqual(shown["jump"], shown["int3"], name)

    def test_all_together(self):
        native = harness.run([self.program, "walk", "7"]).stdout
        definitions = [self.definition(name, ARGUMENTS) for name in self.places]
        shown = []
        for tier in ("jump", "int3"):
            seen, _, trace = self.run_traced(definitions, ["walk", "7"], tier)
            self.assertEqual(seen.stdout, native)
            shown.append(self.arguments_of(trace))
        self.assertEqual(shown[0], shown[1])
        self.assertEqual(len(shown[0]), 7 * 5 + 1)

    def test_another_probe_in_front_takes_the_room(self):
        for before in (1, 2, 3, 4):
            both = [self.definition("four"), self.definition("four", "", before, "other")]
            _, hits, _ = self.run_traced(both, ["walk", "7"], "auto")
            self.assertEqual(hits, {"four": 7, "other": 7}, before)

    def test_returns(self):
        options = ["-p", f"r:back {self.program}:walk $retval"]
        seen = harness.run([*harness.tracer("--return=exits", "-o", self.path("trace"), *options), "--", self.program, "walk", "7"])
        with open(self.path("trace"), encoding="ascii") as file:
            trace = harness.parse_trace(file.read())
        self.assertEqual([hit.arguments for hit in trace], ["arg1=" + seen.stdout.decode().strip()])

    def test_faults_show_their_place_and_are_repaired(self):
        seen, hits, _ = self.run_traced([self.definition("memory", "%si")], ["faults"])
        self.assertEqual(seen.stdout, b"repaired 100 before 100 at 100 elsewhere 0\n")
        _, by_breakpoint, _ = self.run_traced([self.definition("memory", "%si")], ["faults"], "int3")
        self.assertEqual(hits, by_breakpoint)

    def test_faults_whose_handler_comes_back_unseen(self):
        seen, _, _ = self.run_traced([self.definition("memory", "%si")], ["raw_faults"])
        self.assertRegex(seen.stdout, rb"^repaired 100 before 100 ")

    def test_code_that_becomes_writable(self):
        names = [name for name in self.places if name != "return"]
        seen, hits, _ = self.run_traced([self.definition(name) for name in names], ["writable"])
        self.assertEqual(seen.stdout, harness.run([self.program, "writable"]).stdout)
        self.assertEqual(hits, {name: 30 for name in names})

    def test_children(self):
        seen, hits, _ = self.run_traced([self.definition(name) for name in self.places], ["fork"])
        native = harness.run([self.program, "fork"]).stdout
        self.assertEqual(sorted(seen.stdout.splitlines()), sorted(native.splitlines()))
        self.assertEqual(hits, {name: 3 if name == "return" else 15 for name in self.places})


    def test_a_library_that_comes_and_goes(self):
        library = self.path("places.so")
        words = [harness.need("gcc"), "-O1", "-fPIC", "-shared", "-pthread", SOURCE, "-o", library]
        subprocess.run(words, check=True, capture_output=True)
        memory = []
        for times in (20, 400):
            definitions = [self.definition(name).replace(self.program, library) for name in self.places]
            seen, hits, _ = self.run_traced(definitions, ["library", library, str(times)])
            rounds, unnamed = re.fullmatch(rb"(\d+) rounds \w+, (\d+)\n", seen.stdout).groups()
            self.assertEqual(int(rounds), 2 * times)
            self.assertEqual(hits, {name: times if name == "return" else 2 * times for name in self.places})
            memory.append(int(unnamed))
        self.assertLess(memory[1], memory[0] + 65536, "the islands do not grow")


class Changing(Approach):
    """Two threads walk all the time."""

    def setUp(self):
        super().setUp()
        self.runtime = tempfile.TemporaryDirectory(prefix="uprobe-run.")
        self.addCleanup(self.runtime.cleanup)
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": self.runtime.name}

    def start(self, *definitions):
        options = [word for one in definitions for word in ("-p", one)]
        words = harness.tracer("--session", "it", "-b", "1M", "-o", "/dev/null", "--profile", *options)
        self.process = subprocess.Popen([*words, "--", self.program, "live"], stdin=subprocess.PIPE, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                                        env=self.environment)
        self.addCleanup(harness.stop_group, self.process)
        self.assertEqual(self.process.stdout.readline(), "ready\n")
        (self.pid,) = [pid for pid in harness.descendants(self.process.pid) if os.path.samefile(f"/proc/{pid}/exe", self.program)]

    def ask(self, *words):
        seen = harness.run([harness.tool(), "--control", "it", *words], env=self.environment, cwd=self.folder)
        self.assertEqual((seen.returncode, seen.stderr), (0, b""), words)

    def text(self, name, before=0):
        base = int(subprocess.run(["nm", self.program], check=True, capture_output=True, text=True).stdout.split(" T walk\n")[0]
                   .split("\n")[-1], 16)
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
            memory.seek(base + self.places[name][0] - before)
            return memory.read(5)

    def rounds(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def finish(self):
        out, err = self.process.communicate("", timeout=harness.TIMEOUT)
        self.assertEqual(self.process.returncode, 0, err)
        hits = {}
        for name, number in re.findall(r"^  \S+ +(\S+) +(\d+) +\d+$", err, re.M):
            hits[name] = hits.get(name, 0) + int(number)
        return int(out.split()[-1]), hits

    def test_a_jump_stands_in_front(self):
        self.start(self.definition("four"))
        self.assertEqual(self.text("four", 4)[0], 0xe9)
        rounds, hits = self.finish()
        self.assertEqual(hits, {"four": rounds})

    def test_probes_come_to_each_place_of_a_jump(self):
        for before in (4, 3, 2, 1, 0):
            self.start(self.definition("four"))
            self.rounds()
            original = self.text("four", 4) if before == 0 else None
            self.ask("-p", self.definition("four", "", before, "other"))
            first = self.rounds()
            while self.rounds() < first + 1000:
                pass
            if before == 0:
                self.assertEqual(self.text("four", 4), original, "the jump serves both")
            else:
                self.assertEqual(self.text("four", before)[0], 0xcc)
                self.assertEqual(self.text("four")[0], 0xcc)
            self.ask("--remove", "other")
            rounds, hits = self.finish()
            self.assertEqual(hits["four"], rounds, before)
            self.assertGreater(hits["other"], 900)

    def test_the_text_is_as_before_without_consumers(self):
        with open(self.program, "rb") as file:
            whole = file.read()
        self.start(self.definition("four"), self.definition("memory"))
        self.ask("--remove", "four")
        self.assertIn(self.text("four", 4), whole)
        self.assertEqual(self.text("memory", 3)[0], 0xe9)
        self.ask("-p", self.definition("four", "", 0, "again"))
        first = self.rounds()
        while self.rounds() < first + 1000:
            pass
        self.ask("--clear")
        self.assertIn(self.text("memory", 3), whole)
        self.finish()

    def test_storm(self):
        chance = random.Random(1)
        self.start(*(self.definition(name) for name in ("one", "four", "memory", "branch", "stack")))
        there = set()
        for _ in range(60 if harness.LONG else 24):
            name = chance.choice(["one", "four", "memory", "branch", "stack"])
            starts = {"one": (4, 0), "four": (4, 3, 2, 1, 0), "memory": (3, 0), "branch": (2, 0), "stack": (3, 2, 0)}[name]
            event = f"{name}_{chance.choice(starts)}"
            if event in there:
                self.ask("--remove", event)
            else:
                self.ask("-p", self.definition(name, "", int(event.split("_")[1]), event))
            there ^= {event}
        rounds, hits = self.finish()
        for name in ("one", "four", "memory", "branch", "stack"):
            self.assertEqual(hits[name], rounds, name)


if __name__ == "__main__":
    harness.main()
