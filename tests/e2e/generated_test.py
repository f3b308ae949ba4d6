# SPDX-License-Identifier: MIT
"""Probes in code that programs generate as they run: fixtures/generated/generator.c, node, Java and LuaJIT."""
import ctypes
import os
import re
import signal
import struct
import subprocess
import time
import unittest

import harness

THREADS = 4


def has_hardware_breakpoints():
    """perf_event_open of a breakpoint that signals, on this process: the machine, the kernel or its settings may have none."""
    attributes = bytearray(136)
    for at, size, value in ((0, 4, 5), (4, 4, 136), (16, 8, 1), (40, 8, 1 << 1 | 1 << 5 | 1 << 6 | 1 << 35 | 1 << 36 | 1 << 37),
                            (52, 4, 4), (56, 8, 0x1000), (64, 8, 8)):
        attributes[at:at + size] = value.to_bytes(size, "little")
    fd = ctypes.CDLL(None, use_errno=True).syscall(298, bytes(attributes), 0, -1, -1, 0)
    if fd >= 0:
        os.close(fd)
    return fd >= 0


class Generated(harness.TestCase):
    def setUp(self):
        super().setUp()
        if not has_hardware_breakpoints():
            raise unittest.SkipTest("no hardware breakpoints here")
        self.trace = self.path("trace")
        self.looks = 0

    def start(self, *command, **more):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True, **more)
        self.addCleanup(harness.stop_group, process)
        self.addCleanup(self.remove_map, process.pid)
        return process

    def remove_map(self, pid):
        if os.path.lexists(f"/tmp/perf-{pid}.map"):
            os.unlink(f"/tmp/perf-{pid}.map")

    def generator(self):
        process = self.start(harness.fixture("generator"))
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def ask(self, process, line):
        process.stdin.write(line + "\n")
        process.stdin.flush()
        return process.stdout.readline().rstrip("\n")

    def attach(self, process, *definitions, options=()):
        """The tool, when its probes are there."""
        words = harness.tracer("-v", "-o", self.trace)
        for definition in definitions:
            words += ["-p", definition]
        words += [*options, "-P", str(process.pid)]
        tool = subprocess.Popen(words, stderr=subprocess.PIPE, start_new_session=True, text=True)
        self.addCleanup(harness.stop_group, tool)
        lines = []
        for line in tool.stderr:
            lines.append(line)
            if line == "uprobe-run: attached\n":
                return tool
        raise AssertionError("".join(lines))

    def hits(self):
        with open(self.trace, encoding="latin-1") as file:
            return harness.parse_trace(file.read())

    def leave(self, tool):
        """The hits, and what the tool says at its end."""
        tool.send_signal(signal.SIGINT)
        _, said = tool.communicate(timeout=harness.TIMEOUT)
        self.assertEqual(tool.returncode, 0, said)
        return self.hits(), said

    def await_hits(self, process, call, event):
        """Calls until a hit shows: the tool looks at the map ten times a second."""
        def is_hit():
            self.ask(process, call)
            time.sleep(0.05)
            return any(hit.event == event for hit in self.hits())
        harness.wait_until(is_hit, f"a hit of {event}", 60)

    def let_look(self, process):
        """Until the tool has looked at the map, and at the memory of all functions, since now."""
        self.looks += 1
        self.ask(process, f"make {32 - self.looks} marker")

        def is_seen():
            self.ask(process, f"call {32 - self.looks} 1")
            time.sleep(0.05)
            return len({hit.address for hit in self.hits() if hit.event == "marker"}) == self.looks
        harness.wait_until(is_seen, "a look", 60)

    def end_well(self, process):
        process.stdin.close()
        self.assertEqual(process.wait(harness.TIMEOUT), 0)


class Calls(Generated):
    def test_every_call_is_a_hit(self):
        process = self.generator()
        whole = self.ask(process, "digest 0")
        tool = self.attach(process, "jit:first x=%di:s64", "'jit:second /tmp/a.js:1:13' $arg1:s64")
        self.assertEqual(self.ask(process, "digest 0"), whole, "the code is changed")
        self.assertEqual(self.ask(process, "call 0 41"), "42")
        self.assertEqual(self.ask(process, "call 1 41"), "43")
        self.assertEqual(self.ask(process, "calls 0 50"), str(THREADS * sum(x + 1 for x in range(50))))
        self.assertEqual(self.ask(process, "fresh 1 20"), str(sum(x + 2 for x in range(20))))
        hits, said = self.leave(tool)
        first = [int(hit.arguments[2:]) for hit in hits if hit.event == "first"]
        self.assertEqual(sorted(first), sorted([41, *list(range(50)) * THREADS]))
        second = [int(hit.arguments[5:]) for hit in hits if hit.event == "second_tmp_a_js_1_13"]
        self.assertEqual(second, [41, *range(20)])
        self.assertEqual(len({hit.tid for hit in hits}), 2 + THREADS)
        self.assertIn("tiers: 0 jump, 0 int3, 2 hardware" if harness.Options.tier is None else "", said)
        self.assertIn(f"first jit:first: {len(first)} hits", said)
        self.assertNotIn("lost", said)
        self.assertEqual(self.ask(process, "call 0 1"), "2")
        self.end_well(process)

    def test_children_have_none(self):
        process = self.generator()
        tool = self.attach(process, "jit:first")
        self.assertEqual(self.ask(process, "fork 0"), "8")
        self.assertEqual(self.ask(process, "call 0 1"), "2")
        hits, _ = self.leave(tool)
        self.assertEqual([hit.tid for hit in hits], [process.pid])
        self.end_well(process)

    def test_among_signals_whose_handlers_call_it_too(self):
        process = self.generator()
        tool = self.attach(process, "jit:first", "jit:second*")
        self.assertEqual(self.ask(process, "steps 0"), "1800 1")
        hits, _ = self.leave(tool)
        self.assertEqual(sum(hit.event == "first" for hit in hits), 300)
        self.assertGreater(sum(hit.event == "second" for hit in hits), 0)
        self.end_well(process)

    def test_filters_and_memory(self):
        process = self.generator()
        tool = self.attach(process, "p:few jit:fir* x=%di:s64 word=+0(%ip):x32", options=("--filter", "x > 3"))
        for x in range(6):
            self.ask(process, f"call 0 {x}")
        hits, said = self.leave(tool)
        self.assertEqual([hit.arguments for hit in hits], ["x=4 word=0xfa1e0ff3", "x=5 word=0xfa1e0ff3"])
        self.assertIn("4 filtered", said)
        self.end_well(process)

    def test_a_program_that_is_started(self):
        words = harness.tracer("-o", self.trace, "-p", "jit:first %di:s64", "--", harness.fixture("generator"))
        process = self.start(*words, stderr=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), "ready\n")
        self.await_hits(process, "call 0 9", "first")
        process.stdin.close()
        self.assertEqual(process.wait(harness.TIMEOUT), 0)
        self.assertEqual({hit.arguments for hit in self.hits()}, {"arg1=9"})

    def test_definitions_come_and_go(self):
        process = self.generator()
        name = f"generated{os.getpid()}"
        tool = self.attach(process, "jit:first", options=("--session", name))
        control = [harness.tool(), "--control", name]
        self.assertEqual(harness.run([*control, "-p", "p:two jit:sec*"]).returncode, 0)
        self.ask(process, "call 1 1")
        self.ask(process, "call 0 1")
        self.assertEqual(harness.run([*control, "--remove", "first"]).returncode, 0)
        self.ask(process, "call 1 1")
        self.ask(process, "call 0 1")
        hits, _ = self.leave(tool)
        self.assertEqual([hit.event for hit in hits], ["two", "first", "two"])
        self.end_well(process)


class Changes(Generated):
    """Code that comes later, and code that goes."""

    def test_functions_that_come_later(self):
        process = self.generator()
        tool = self.attach(process, "p:later jit:new:*")
        self.ask(process, "make 5 new:one")
        self.await_hits(process, "call 5 1", "later")
        self.ask(process, "make 6 new:two (a b)")
        before = len(self.hits())
        harness.wait_until(lambda: self.ask(process, "call 6 1") and time.sleep(0.05) is None and len(self.hits()) > before,
                           "a hit of the second one", 60)
        self.leave(tool)
        self.end_well(process)

    def test_moved_code(self):
        process = self.generator()
        tool = self.attach(process, "jit:first", "jit:marker")
        self.ask(process, "call 0 1")
        self.assertEqual(self.ask(process, "move 0 7"), "moved")
        self.assertEqual(self.ask(process, "call 7 1"), "2", "the copy is what the program wrote")
        self.lost(process, tool, 1)

    def test_changed_code(self):
        process = self.generator()
        tool = self.attach(process, "jit:first", "jit:marker")
        self.ask(process, "call 0 1")
        self.ask(process, "tail 0")
        self.assertEqual(self.ask(process, "call 0 1"), "102", "the program's own code runs")
        self.lost(process, tool, 1)

    def test_freed_code(self):
        process = self.generator()
        tool = self.attach(process, "jit:first", "jit:marker")
        self.ask(process, "call 0 1")
        self.assertEqual(self.ask(process, "free 0"), "freed")
        self.let_look(process)
        self.ask(process, "make 0 another")
        self.assertEqual(self.ask(process, "call 0 1"), "2")
        self.lost(process, tool, 1)

    def test_memory_that_is_used_again(self):
        process = self.generator()
        tool = self.attach(process, "jit:first", "jit:marker")
        self.ask(process, "call 0 1")
        self.ask(process, "make 0 another")  # the same bytes, and another name
        self.let_look(process)
        self.ask(process, "call 0 1")
        self.lost(process, tool, 1)

    def lost(self, process, tool, hits_before):
        self.let_look(process)
        hits, said = self.leave(tool)
        self.assertEqual(sum(hit.event == "first" for hit in hits), hits_before)
        self.assertIn("generated code: 1 function lost the probe, moved, freed or changed", said)
        self.end_well(process)

    def test_more_than_there_are_breakpoints(self):
        process = self.generator()
        for number in range(2, 8):
            self.ask(process, f"make {number} many{number}")
        tool = self.attach(process, "p:any jit:many*")
        for number in range(2, 8):
            self.ask(process, f"call {number} 1")
        hits, said = self.leave(tool)
        self.assertEqual(len(hits), 4)
        self.assertIn("generated code: 2 functions not probed, because the processor has 4 hardware breakpoints", said)
        self.end_well(process)

    def test_the_newest_code_of_a_name(self):
        process = self.generator()
        for number in range(2, 6):
            self.ask(process, f"make {number} one")
        tool = self.attach(process, "jit:one")
        self.ask(process, "make 6 one")
        self.await_hits(process, "call 6 3", "one")
        self.leave(tool)
        self.end_well(process)

    def test_a_map_that_is_written_anew(self):
        process = self.generator()
        tool = self.attach(process, "p:renamed jit:other", "jit:second*")
        self.ask(process, "call 1 1")
        self.ask(process, "rewrite other")
        self.await_hits(process, "call 0 1", "renamed")
        self.ask(process, "call 1 1")
        hits, said = self.leave(tool)
        self.assertEqual(sum(hit.event == "second" for hit in hits), 2)
        self.assertNotIn("lost", said)
        self.end_well(process)


class Dumps(Generated):
    """jit-PID.dump, where there is no map."""
    PAGE = 4096

    def setUp(self):
        super().setUp()
        self.process = self.generator()
        with open(f"/tmp/perf-{self.process.pid}.map", encoding="latin-1") as file:
            self.base = int(file.readline().split()[0], 16)
        self.dump = self.path(f"jit-{self.process.pid}.dump")
        self.begin()

    def begin(self, head=None):
        with open(self.dump, "wb") as file:
            file.write(struct.pack("<IIIIIIQQ", 0x4A695444, 1, 40, 62, 0, self.process.pid, 0, 0) if head is None else head)

    def record(self, kind, data):
        return struct.pack("<IIQ", kind, 16 + len(data), 0) + data

    def made(self, number, name, code=b"\xcc" * 24):
        at = self.base + number * self.PAGE
        return self.record(0, struct.pack("<IIQQQQ", self.process.pid, 1, at, at, 24, number) + name.encode() + b"\0" + code)

    def moved(self, number, to):
        places = [self.base + n * self.PAGE for n in (number, to)]
        return self.record(1, struct.pack("<IIQQQQQ", self.process.pid, 1, places[1], *places, 24, number))

    def add(self, *records):
        with open(self.dump, "ab") as file:
            file.write(b"".join(records))

    def shown(self, *definitions):
        self.assertEqual(self.ask(self.process, "dump " + self.dump), "shown")
        return self.attach(self.process, *definitions)

    def test_names_and_code_that_comes_later(self):
        self.add(self.record(2, b"x" * 100), self.made(0, "JS:*work /tmp/a.js:1"), self.record(77, b""), self.made(1, "other"))
        tool = self.shown("p:work jit:*work* %di:s64", "p:later jit:later")
        self.ask(self.process, "call 0 5")
        self.ask(self.process, "call 1 6")
        self.ask(self.process, "make 9 x")
        self.add(self.made(9, "later", b"\x90" * (3 << 20)))
        self.await_hits(self.process, "call 9 1", "later")
        hits, said = self.leave(tool)
        self.assertEqual([hit.arguments for hit in hits if hit.event == "work"], ["arg1=5"])
        self.assertNotIn("lost", said)
        self.end_well(self.process)

    def test_moved_code(self):
        self.add(self.made(0, "work"), self.made(1, "other"))
        tool = self.shown("jit:work %di:s64")
        self.ask(self.process, "call 0 1")
        self.ask(self.process, "move 0 7")
        self.add(self.moved(0, 7))
        harness.wait_until(lambda: self.ask(self.process, "call 7 2") and len({hit.address for hit in self.hits()}) == 2,
                           "a hit where it is now", 60)
        _, said = self.leave(tool)
        self.assertIn("generated code: 1 function lost the probe, moved, freed or changed", said)
        self.end_well(self.process)

    def test_a_record_that_is_written_yet(self):
        whole = self.made(0, "work")
        self.add(whole[:30])
        tool = self.shown("jit:work")
        self.add(whole[30:])
        self.await_hits(self.process, "call 0 2", "work")
        self.leave(tool)
        self.end_well(self.process)

    def test_a_map_is_better(self):
        self.add(self.made(0, "work"))
        self.assertEqual(self.ask(self.process, "dump " + self.dump), "shown")
        with open(f"/tmp/perf-{self.process.pid}.map", "w", encoding="latin-1") as file:
            file.write(f"{self.base:x} 18 first\n")
        tool = self.attach(self.process, "jit:work", "jit:first")
        self.ask(self.process, "call 0 1")
        hits, _ = self.leave(tool)
        self.assertEqual([hit.event for hit in hits], ["first"])
        self.end_well(self.process)

    def test_what_is_no_dump(self):
        """The program goes on as it was, and nothing is probed."""
        wild = struct.pack("<IIQQQQ", 1, 1, 0, 2 ** 64 - 1, 2 ** 63, 0) + b"work\0"
        later = struct.pack("<IIIIIIQQ", 0x4A695444, 9, 40, 0, 0, 0, 0, 0)
        for name, content in (("empty", b""), ("text", b"no dump " * 100), ("version", later), ("short record", None), ("wild", None),
                              ("no end", None)):
            with self.subTest(name=name):
                self.begin(content)
                if name == "short record":
                    self.add(struct.pack("<IIQ", 0, 3, 0), self.made(0, "work"))
                if name == "wild":
                    self.add(self.record(0, wild), self.record(1, wild * 2), self.record(0, b""), self.record(1, b"x"))
                if name == "no end":
                    self.add(struct.pack("<IIQ", 0, 0xffffffff, 0), self.made(0, "work"))
                tool = self.shown("jit:work")
                self.assertEqual(self.ask(self.process, "call 0 1"), "2")
                hits, _ = self.leave(tool)
                self.assertEqual(hits, [])
        self.end_well(self.process)

    def test_a_link_and_another_users_file(self):
        self.add(self.made(0, "work"))
        os.rename(self.dump, self.path("elsewhere"))
        os.symlink(self.path("elsewhere"), self.dump)
        tool = self.shown("jit:work")
        self.ask(self.process, "call 0 1")
        self.assertEqual(self.leave(tool)[0], [])  # the mapping has the name of the file itself
        os.unlink(self.dump)
        os.rename(self.path("elsewhere"), self.dump)
        if os.geteuid() == 0:
            os.chown(self.dump, 4711, 4711)
            tool = self.shown("jit:work")
            self.ask(self.process, "call 0 1")
            self.assertEqual(self.leave(tool)[0], [])
        self.end_well(self.process)


class Hostile(Generated):
    def test_addresses_of_other_code(self):
        """A map may say any address: of libc, of the agent and its islands, of nothing, of the kernel, of data."""
        process = self.generator()
        tool = self.attach(process, "jit:marker", "p:work jit:evil*", "p:libc_work libc:getpid")
        lines = []
        with open(f"/proc/{process.pid}/maps", encoding="latin-1") as maps:
            for line in maps:
                begin, end = line.split(" ")[0].split("-")
                if re.search(r" ..x", line) and not line.split()[5:]:
                    lines.append(f"{begin} {int(end, 16) - int(begin, 16):x}")
                elif "libuprobe" in line or "libc.so" in line or "[vdso]" in line or "[stack]" in line:
                    lines.append(f"{int(begin, 16) + 0x100:x} 10")
        for number, place in enumerate([*lines, "10 10", "ffffffffff600000 10", "7ffffffff000 1000", "0 0"]):
            self.ask(process, f"write {place} evil{number}")
            if number % 4 == 3:
                time.sleep(0.3)
            self.assertEqual(self.ask(process, "call 1 1"), "3")
        self.ask(process, "write " + "x" * 8000)
        self.let_look(process)
        self.assertEqual(self.ask(process, "calls 0 5"), str(THREADS * 15))
        _, said = self.leave(tool)
        self.assertIn("is not probed: its map says the address of other code", said)
        self.assertEqual(self.ask(process, "call 0 1"), "2")
        self.end_well(process)

    def test_killed_tools_leave_nothing(self):
        process = self.generator()
        tool = self.attach(process, "jit:first")
        self.ask(process, "call 0 1")
        for pid in [*harness.descendants(tool.pid), tool.pid]:
            os.kill(pid, signal.SIGKILL)
        for _ in range(20):
            self.assertEqual(self.ask(process, "calls 0 20"), str(THREADS * 210))
        again = self.attach(process, "jit:first")
        self.ask(process, "call 0 1")
        hits, _ = self.leave(again)
        self.assertEqual(len(hits), 1)
        self.end_well(process)

    def test_attaching_again_and_again_while_it_is_called(self):
        process = self.generator()
        for _ in range(harness.some_of(12)):
            tool = self.attach(process, "jit:first")
            process.stdin.write("calls 0 200\n")
            process.stdin.flush()
            hits, _ = self.leave(tool)
            self.assertEqual(process.stdout.readline(), f"{THREADS * sum(range(1, 201))}\n")
            self.assertLessEqual(len(hits), THREADS * 200)
        self.end_well(process)


class Refusals(Generated):
    def refused(self, *words):
        done = harness.run([*harness.tracer(), *words])
        self.assertEqual(done.returncode, 125, done.stderr)
        return done.stderr.decode()

    def test_what_needs_a_file(self):
        process = self.generator()
        for definition, why in (("r:x jit:first", "returns of generated code cannot be probed"),
                                ("p:x jit:first @errno", "needs a file, and generated code has none"),
                                ("p:x jit:first name", "needs a file, and generated code has none"),
                                ("p:x jit:first %di:symbol", "names of addresses are not known in generated code"),
                                ("p:x jit:", "")):
            said = self.refused("-p", definition, "-P", str(process.pid))
            self.assertIn(why, said)
            self.assertIn("^", said)
        self.assertIn("is in generated code", self.refused("--tier=jump", "-p", "jit:first", "-P", str(process.pid)))
        self.end_well(process)

    def test_a_function_that_is_not_there(self):
        process = self.generator()
        tool = self.attach(process, "jit:nowhere")
        _, said = self.leave(tool)
        self.assertIn("0 hits (no function of this name in the map of generated code, /tmp/perf-PID.map)", said)
        self.end_well(process)

    def test_plans(self):
        process = self.generator()
        for words, expected in ((("--dry-run", "-p", "jit:first"), "tier  hardware: it is in generated code"),
                                (("--explain", "jit:first"), "a breakpoint of the processor")):
            done = harness.run([*harness.tracer(*words), "-P", str(process.pid)])
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(expected, done.stdout.decode())
        self.end_well(process)


NODE = """
function work(text) { return text.length + 1; }
let sum = 0, turns = 0;
setInterval(() => { for (let i = 0; i < 200; ++i) sum += work("x" + i); if (++turns % 50 == 0) gc(); }, 2);
process.stdin.on("end", () => { console.log(sum > 0 ? "fine" : "bad"); process.exit(0); });
process.stdin.resume();
"""
JAVA = """
class Work {
  static int work(int x) { return 3 * x + 1; }
  public static void main(String[] words) throws Exception {
    long sum = 0;
    while (System.in.available() == 0) { for (int i = 0; i < 20000; ++i) sum += work(i); Thread.sleep(5); }
    System.out.println(sum % 19999 >= 0 ? "fine" : "bad");
  }
}
"""
LUA = """
local util, vmdef = require("jit.util"), nil
local pid = io.open("/proc/self/stat"):read("*n")
local map = assert(io.open("/tmp/perf-" .. pid .. ".map", "w"))
jit.attach(function(what, number)
  if what ~= "stop" then return end
  local code, address = util.tracemc(number)
  map:write(string.format("%x %x TRACE_%d\\n", address, #code, number))
  map:flush()
end, "trace")
local function work(x) local sum = 0; for i = 1, 100 do sum = sum + i % x end; return sum end
local ended, total = io.open(arg[1]), 0
while not ended do for x = 2, 60 do total = total + work(x) end; ended = io.open(arg[1]) end
print(total > 0 and "fine" or "bad")
"""


class Programs(Generated):
    """What generates code in earnest: it goes on to its end, and hits are seen."""

    def probe(self, process, definition, arguments):
        tool = self.attach(process, definition, options=("-n", "200"))
        _, said = tool.communicate(timeout=4 * harness.TIMEOUT)
        self.assertEqual(tool.returncode, 0, said)
        hits = self.hits()
        self.assertEqual(len(hits), 200, said)
        self.assertTrue(all(re.fullmatch(arguments, hit.arguments) for hit in hits), hits[:3])

    def map_has(self, process, pattern):
        def has():
            try:
                with open(f"/tmp/perf-{process.pid}.map", encoding="latin-1") as file:
                    return re.search(pattern, file.read())
            except OSError:
                return False
        harness.wait_until(has, f"{pattern} in the map", 120)

    def test_node(self):
        """With a collector that compacts its code."""
        script = self.write("work.js", NODE)
        process = self.start(harness.need("node"), "--perf-basic-prof", "--expose-gc", "--no-turbo-inlining",
                             "--max-inlined-bytecode-size=0", script, cwd=self.folder)
        self.map_has(process, r"\*work ")
        self.probe(process, "p:work jit:*work*", "")
        self.assertEqual(process.communicate(timeout=2 * harness.TIMEOUT)[0], "fine\n")
        self.assertEqual(process.returncode, 0)

    def test_a_dump_of_node(self):
        """node writes its dump in large pieces: functions that are made all the time fill them."""
        more = "setInterval(() => { for (let i = 0; i < 50; ++i) new Function('x', `return x + ${turns} + ${i}`)(1); }, 1);\n"
        script = self.write("work.js", NODE + more)
        process = self.start(harness.need("node"), "--perf-prof", "--expose-gc", "--always-sparkplug", "--no-turbo-inlining",
                             "--max-inlined-bytecode-size=0", script, cwd=self.folder)

        def has():
            try:
                with open(self.path(f"jit-{process.pid}.dump"), "rb") as file:
                    return re.search(rb"[*^]work ", file.read())
            except OSError:
                return False
        harness.wait_until(has, "work in the dump", 120)
        self.probe(process, "p:work jit:*work*", "")
        self.assertEqual(process.communicate(timeout=2 * harness.TIMEOUT)[0], "fine\n")
        self.assertEqual(process.returncode, 0)

    def test_java(self):
        java, jcmd, javac = (harness.need(name) for name in ("java", "jcmd", "javac"))
        subprocess.run([javac, self.write("Work.java", JAVA)], check=True, cwd=self.folder)
        process = self.start(java, "-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Work.work", "-cp", self.folder, "Work")
        def is_compiled():
            done = subprocess.run([jcmd, str(process.pid), "Compiler.perfmap"], capture_output=True, text=True)
            if "Unknown diagnostic command" in done.stdout:
                raise unittest.SkipTest("a Java with Compiler.perfmap is not installed")
            path = f"/tmp/perf-{process.pid}.map"
            if not os.path.exists(path):
                return False
            with open(path, encoding="latin-1") as file:
                return " int Work.work(int)" in file.read()
        harness.wait_until(is_compiled, "Work.work to be compiled", 120)
        self.probe(process, "p:work jit:*Work.work* x=%si:s32", r"x=\d+")
        self.assertEqual(process.communicate("\n", timeout=2 * harness.TIMEOUT)[0], "fine\n")
        self.assertEqual(process.returncode, 0)

    def test_luajit(self):
        """Debian's writes no map: the script does."""
        process = self.start(harness.need("luajit"), self.write("work.lua", LUA), self.path("end"))
        self.map_has(process, "TRACE_1")
        self.probe(process, "p:trace jit:TRACE_*", "")
        self.write("end", "")
        self.assertEqual(process.communicate(timeout=2 * harness.TIMEOUT)[0], "fine\n")
        self.assertEqual(process.returncode, 0)


if __name__ == "__main__":
    harness.main()
