# SPDX-License-Identifier: MIT
"""gdb attached from outside, with scripts/uprobe-gdb.py, to a thread that takes hits: from every instruction of a hit the
backtrace leads to the program's own frames, with the registers of the probed instruction.
"""
import os
import re
import subprocess

import harness

FUNCTIONS = ("sum", "leaf", "middle", "outer", "main")
# Steps through instructions; of each one the functions from the innermost outwards, and rdi where a hit leads to.
WALK = """
def names_of(frame):
    while frame:
        yield frame.name() or "?"
        frame = frame.older()

def rdi_of_hit(frame):
    while frame:
        outer = frame.older()
        if outer and outer.name() in ("leaf", "middle") and frame.name() is None:
            return int(outer.read_register("rdi"))
        frame = outer

for step in range(STEPS):
    frame = gdb.newest_frame()
    print("AT", hex(frame.pc()), rdi_of_hit(frame), *names_of(frame))
    gdb.execute("stepi", to_string=True)
"""


class Debugger(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.gdb = harness.need("gdb")
        source = os.path.join(harness.Options.source, "tests", "e2e", "fixtures", "debugged.c")
        self.program = self.path("debugged")
        subprocess.run([harness.need("gcc"), "-O2", "-g", "-o", self.program, source], check=True)

    def start(self, definitions, options=()):
        words = [harness.tool(), "-o", os.devnull, *options]
        for definition in definitions:
            words += ["-p", definition.replace("PROGRAM", self.program)]
        tool = subprocess.Popen([*words, "--", self.program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True, start_new_session=True)
        self.addCleanup(harness.stop_group, tool)
        self.assertEqual(tool.stdout.readline(), "running\n")
        return harness.descendants(tool.pid)[-1]

    def ask(self, pid, *commands):
        script = os.path.join(harness.Options.source, "scripts", "uprobe-gdb.py")
        words = [self.gdb, "-nx", "-q", "-batch", "-x", script, "-p", str(pid)]
        for command in commands:
            words += ["-ex", command]
        seen = harness.run(words)
        self.assertNotIn(b"Python Exception", seen.stdout + seen.stderr)
        return seen.stdout.decode()

    def walk(self, definitions, steps, options=()):
        """[(address, rdi after a hit, functions)]; each of them leads to the program's frames."""
        pid = self.start(definitions, options)
        script = self.path("walk.py")
        with open(script, "w", encoding="ascii") as file:
            file.write(WALK.replace("STEPS", str(steps)))
        found = [line.split()[1:] for line in self.ask(pid, f"source {script}").splitlines() if line.startswith("AT ")]
        self.assertEqual(len(found), steps)
        for address, _, *names in found:
            own = [name for name in names if name in FUNCTIONS]
            self.assertEqual(own[-2:], ["outer", "main"], (address, names))
            self.assertEqual(tuple(own), FUNCTIONS[FUNCTIONS.index(own[0]):], (address, names))
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            self.assertIn(file.read().rpartition(")")[2].split()[0], "RS")
        return found

    def hits(self, found):
        """The backtraces of threads in a hit from which the probed function follows."""
        return [(address, rdi) for address, rdi, *names in found if names[0] not in FUNCTIONS]

    def test_from_every_instruction_of_a_hit(self):
        hits = self.hits(self.walk(["p:l PROGRAM:leaf %di %si"], 400))
        self.assertGreater(len({address for address, _ in hits}), 30)  # thunk, body and copy
        self.assertEqual({rdi for _, rdi in hits}, {"7"})

    def test_from_the_agents_own_code(self):
        found = self.walk(["p:l PROGRAM:leaf %di %si", "p:again PROGRAM:leaf %si"], 1500)
        self.assertTrue(any("uprobe_jump_entry" in names for _, _, *names in found))
        self.assertEqual({rdi for _, rdi in self.hits(found)}, {"7"})

    def test_from_returns(self):
        found = self.walk(["r:l PROGRAM:leaf $retval"], 400, ("--return=exits", "--tier=jump"))
        self.assertGreater(len(self.hits(found)), 10)

    def test_through_a_stub(self):
        pid = self.start(["r:l PROGRAM:leaf $retval", "p:inside PROGRAM:sum"], ("--return=stub",))
        for _ in range(3):
            seen = re.findall(r"^#\d+ +(?:0x[0-9a-f]+ in )?(<.*>|[\w?]+)", self.ask(pid, "break sum", "continue", "bt"), re.M)
            self.assertEqual(seen, ["sum", "leaf", "<signal handler called>", "middle", "outer", "main"])

    def test_nothing_without_an_agent(self):
        process = subprocess.Popen([self.program], stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(harness.stop_group, process)
        self.assertEqual(process.stdout.readline(), "running\n")
        self.assertRegex(self.ask(process.pid, "bt"), r"(?s)in outer .* in main")


harness.main()
