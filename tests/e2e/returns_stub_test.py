# SPDX-License-Identifier: MIT
"""Return probes by stubs: the same programs as by exits, and cases that matter only for stubs: frames left by exceptions, jumps
and the ends of threads, unwinders, coroutines, chains of tail calls, stacks a million frames deep.
"""
import glob
import os
import re
import subprocess
import sys
import time

import harness
import returns_test
from elf_reader import Elf
from returns_test import Counts, Kernel, Preloaded  # noqa: F401 (run here as well)

FUNCTIONS = ("throwing", "rethrowing", "throws_at_once", "catching_at_the_end", "jumping_to_throwing", "nested",
             "ends_thread", "waits_for_ever", "looking", "leaping", "on_alarm", "spinning", "deep", "switching", "counted",
             "resuming", "tail_a", "tail_b", "tail_self", "tail_1", "tail_2", "tail_3", "tail_4", "tail_5",
             "child_of_vfork", "main")
NOT_FOLLOWED = re.compile(rb"/r_(\w+) .*?([\d,]+) returns? not followed")

# mode -> function -> (calls, returns); main is called and returns once in each
EXPECTED = {
    "exceptions": {"throwing": (358, 0), "rethrowing": (10, 0), "throws_at_once": (2, 0), "catching_at_the_end": (2, 2),
                   "jumping_to_throwing": (8, 0), "nested": (2, 2)},
    "thread_ends": {"ends_thread": (11, 0), "waits_for_ever": (11, 0)},
    "lookers": {"looking": (21, 21)},
    "jumps": {"leaping": (80000, 0)},
    "fibers": {"switching": (6500, 6450)},
    "recursion": {"deep": (1000001, 1000001)},
    "coroutines": {"counted": (42, 42), "resuming": (5, 5)},
    # a function is once in a chain, and a chain has three
    "tails": {"tail_self": (1000, 1), "tail_a": (1000, 1), "tail_b": (1000, 1),
              **{f"tail_{i}": (101, 101 if i < 4 else 0) for i in range(1, 6)}},
    "processes": {"throws_at_once": (1, 0), "catching_at_the_end": (1, 1), "child_of_vfork": (10, 10)},
    "next_symbol": {},
}


def programs(test):
    """The names of the program's builds."""
    names = [name for name in ("frames_gcc", "frames_clang", "frames_static")
             if os.path.exists(os.path.join(harness.Options.fixtures or "", name))]
    if not names:
        test.skipTest("frames was not built here")
    return names


class Frames(harness.TestCase):
    """The program notices nothing, and the returns equal the entries except for abandoned ones."""

    def run_mode(self, name, mode, *extra, options=(), environment=None):
        program = self.copy_of(harness.fixture(name))
        alone = harness.run([program, mode])
        definitions = [f"{kind}:{kind}_{function} {program}:{function}" for function in FUNCTIONS for kind in "pr"]
        seen = harness.run_tool([*definitions, *extra], [program, mode], [returns_test.BIG_RINGS, *options])
        self.assertEqual((seen.returncode, seen.stdout), (alone.returncode, alone.stdout), seen.stderr[-3000:])
        return seen

    def check_counts(self, seen, mode):
        hits = seen.counts()
        found = {name: (hits.get(f"p_{name}", 0), hits.get(f"r_{name}", 0)) for name in FUNCTIONS}
        expected = {name: EXPECTED[mode].get(name, (0, 0)) for name in FUNCTIONS} | {"main": (1, 1)}
        self.assertEqual(found, expected)
        missed = {name.decode(): int(count.replace(b",", b"")) for name, count in NOT_FOLLOWED.findall(seen.stderr)}
        chained = {name: calls - returns for name, (calls, returns) in expected.items()
                   if name.startswith("tail") and calls != returns}
        self.assertEqual(missed, chained)

    def test_alarms(self):
        """Handlers leave by siglongjmp from any place of the thread."""
        for name in programs(self):
            with self.subTest(name):
                hits = self.run_mode(name, "alarms").counts()
                self.assertIn(hits["p_on_alarm"], (300, 301), "one may be on its way when the timer is stopped")
                self.assertEqual(hits.get("r_on_alarm", 0), 0)
                self.assertLessEqual(hits["p_spinning"] - hits["r_spinning"], 301)
                self.assertGreaterEqual(hits["p_spinning"], hits["r_spinning"])

    def test_what_keeps_its_return_address(self):
        """setjmp returns twice, vfork in both processes, swapcontext on other stacks."""
        program = programs(self)[0]
        libc = harness.libc_of(harness.fixture(program))
        for mode, function, calls, returns in (("jumps", "_setjmp", 20000, 40000), ("processes", "vfork", 5, 10),
                                               ("fibers", "swapcontext", 13050, 13000)):
            with self.subTest(function):
                seen = self.run_mode(program, mode, f"p:in {libc}:{function}", f"r:out {libc}:{function}")
                hits = seen.counts()
                self.assertIn(hits["in"] - calls, range(8), "the C library's own")
                self.assertEqual(hits["out"] - returns, hits["in"] - calls)

    def test_who_asks_for_its_caller(self):
        """dlsym(RTLD_NEXT) reads its return address."""
        program = programs(self)[0]
        libc = harness.libc_of(harness.fixture(program))
        refused = harness.run_tool([f"r:e {libc}:dlsym"], ["/bin/true"])
        self.assertEqual((refused.returncode, refused.stdout), (125, b""))
        self.assertIn(b"reads its own return address", refused.stderr)
        command = [harness.fixture(program), "next_symbol"]
        seen = harness.run_tool([f"r:e {libc}:dlsym"], command, ["--return=exits"])
        self.assertEqual((seen.returncode, seen.stdout), (7, b"found\n"), seen.stderr)
        self.assertGreater(seen.counts().get("e", 0), 0)

    def test_the_program_goes_on_after_the_session(self):
        """Its frames still return by stubs, and exceptions pass through them."""
        program = self.copy_of(harness.fixture(programs(self)[0]))
        alone = harness.run([program, "exceptions", "again"])
        definitions = [f"r:r_{function} {program}:{function}" for function in FUNCTIONS]
        seen = harness.run_tool(definitions, [program, "exceptions", "again"], ["-d3"])
        self.assertEqual((seen.returncode, seen.stdout), (alone.returncode, alone.stdout), seen.stderr)
        self.assertEqual(seen.counts().get("r_catching_at_the_end"), 2)

    def test_preloaded(self):
        program = self.copy_of(harness.fixture(programs(self)[0]))
        probes = ";".join(f"r:r_{function} {program}:{function}" for function in FUNCTIONS)
        for mode in ("exceptions", "thread_ends", "lookers", "alarms", "fibers", "processes"):
            with self.subTest(mode):
                alone = harness.run([program, mode])
                environment = harness.preloaded(UPROBE_PROBES=probes, UPROBE_OUTPUT=self.path(mode))
                seen = harness.run([program, mode], env={**os.environ, **environment})
                self.assertEqual((seen.returncode, seen.stdout), (alone.returncode, alone.stdout), seen.stderr)
                with open(self.path(mode), encoding="latin-1") as file:
                    self.assertGreater(len(harness.parse_trace(file.read())), 0)

    def test_beside_an_unwinder_that_fails_at_stubs(self):
        unwinder = "/usr/lib/x86_64-linux-gnu/libunwind.so.8"
        if not os.path.exists(unwinder):
            self.skipTest("no nongnu libunwind here")
        program = self.copy_of(harness.fixture(programs(self)[0]))
        command = ["env", f"LD_PRELOAD={unwinder}", program, "exceptions"]
        alone = harness.run(command)
        seen = harness.run_tool([f"r:r_throwing {program}:throwing", f"r:r_nested {program}:nested"], command)
        self.assertEqual((seen.returncode, seen.stdout), (alone.returncode, alone.stdout), seen.stderr)
        self.assertEqual(seen.counts(), {})
        self.assertIn(b"cannot pass return stubs", seen.stderr)


class Entries(returns_test.Entries):
    """The same by stubs; a function that takes its arguments from the stack as it returns finds no entry record."""

    @returns_test.for_each_compiler
    def test_memory_then_and_now(self, program):
        definitions = [f"r:e {program}:text given=entry(%di):s32 again=$entry_arg1:u8 +0($retval):string",
                       f"r:p {program}:popping a=entry(+8(%sp)):s64 v=$retval:s64"]
        seen = harness.run_tool(definitions, [program, "values"])
        self.assertEqual(seen.returncode, 7, seen.stderr)
        found = {name: [hit.arguments for hit in seen.hits if hit.event == name] for name in "ep"}
        self.assertEqual(found["e"], [f'given={n} again={n} arg3="text-{n}"' for n in range(40)])
        self.assertEqual(found["p"], [f"a=(missing) v={n + 7 + 1100}" for n in range(40)])


class TailCalls(harness.TestCase):
    """A function that ends in another one has its own entry and its own time, until that one has returned."""

    def returns_of(self, name, mode, functions, *options):
        program = self.copy_of(harness.fixture(name))
        definitions = [f"r:{function} {program}:{function} n=$entry_arg1:s64 v=$retval:s64 ns=$latency"
                       for function in functions]
        command = [program, mode] if mode else [program]
        alone = harness.run(command)
        seen = harness.run_tool(definitions, command, [returns_test.BIG_RINGS, *options])
        self.assertEqual((seen.returncode, seen.stdout), (alone.returncode, alone.stdout), seen.stderr)
        texts = [(hit.event, re.fullmatch(r"n=(-?\d+) v=(-?\d+) ns=(\d+)", hit.arguments)) for hit in seen.hits]
        self.assertTrue(all(match for _, match in texts), seen.stderr)
        return [(function, *map(int, match.groups())) for function, match in texts]

    def test_a_chain(self):
        for name in programs(self):
            for tier in ("auto", "int3"):
                with self.subTest(name, tier=tier):
                    found = self.returns_of(name, "tails", ["tail_1", "tail_2", "tail_3"], f"--tier={tier}")
                    self.assertEqual([function for function, *_ in found], ["tail_3", "tail_2", "tail_1"] * 101)
                    for i, first in enumerate([7, *range(100)]):
                        chain = found[3 * i:3 * i + 3]
                        self.assertEqual([n for _, n, _, _ in chain], [first + 0x200, first + 0x100, first])
                        self.assertEqual({value for _, _, value, _ in chain}, {first + 0x401})
                        times = [time for *_, time in chain]
                        self.assertEqual(times, sorted(times), "who began earlier has returned later")

    def test_who_comes_back_to_its_beginning_is_one_call(self):
        for name in programs(self):
            with self.subTest(name):
                found = {function: (n, value) for function, n, value, _ in
                         self.returns_of(name, "tails", ["tail_self", "tail_a", "tail_b"])}
                self.assertEqual(found, {"tail_self": (1000, 1000), "tail_a": (1000, 3000), "tail_b": (999, 3000)})

    def test_without_an_option(self):
        """The function that returns by a tail call has a stub, its callee an exit, in the order of the kernel."""
        program = self.copy_of(harness.fixture("callers_"))
        definitions = [f"r:{name} {program}:{name} ns=$latency" for name in ("tailing", "returned_for")]
        seen = harness.run_tool(definitions, [program], ["--return=auto"])
        self.assertEqual(seen.returncode, 7, seen.stderr)
        followed = [(hit.event, int(hit.arguments.removeprefix("ns="))) for hit in seen.hits[100:]]
        self.assertEqual([name for name, _ in followed], ["returned_for", "tailing"] * 50)
        for inner, outer in zip(followed[::2], followed[1::2]):
            self.assertLessEqual(inner[1], outer[1])

    def test_refused_where_nothing_follows(self):
        program = self.copy_of(harness.fixture("callers_"))
        definition = f"r:e {program}:tailing n=$entry_arg1 ns=$latency"
        seen = harness.run_tool([definition], [program], ["--return=exits"])
        self.assertEqual((seen.returncode, seen.stdout), (125, b""))
        self.assertIn(b"in another function, which returns for it: 'ns' is not known there", seen.stderr)
        shown, caret = seen.stderr.decode().splitlines()[1:3]
        self.assertEqual(shown[caret.index("^"):], "ns=$latency")


class Attached(harness.TestCase):
    """A running process is given back, which stubs prevent: the user has to insist."""

    SOURCE = """
#include <stdio.h>
#include <unistd.h>
__attribute__((noipa)) long last(long value) { __asm__ volatile("" : "+r"(value)); return value * 2; }
__attribute__((noipa)) long leads(long value) { return last(value + 1); }
int main(void) {
  long wrong = 0;
  puts("ready"), fflush(stdout);
  char byte;
  while (read(0, &byte, 1) == 0 || byte != 'q')
    for (long i = 0; i < 100; ++i) wrong += leads(i) != 2 * i + 2;
  for (long i = 0; i < 100; ++i) wrong += leads(i) != 2 * i + 2;
  return wrong == 0 ? 7 : 1;
}
"""

    def test_only_when_the_user_insists(self):
        program = self.path("runs")
        subprocess.run([harness.need("gcc"), "-O2", "-o", program, self.write("runs.c", self.SOURCE)], check=True)
        process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self.addCleanup(harness.stop_group, process)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        words = ["-P", str(process.pid), "-d100ms", "-p", f"r:e {program}:leads $retval ns=$latency", "-p", f"r:l {program}:last"]
        refused = harness.run([harness.tool(), *words])
        self.assertEqual(refused.returncode, 125)
        for part in (b"'arg1' is not known there", b"--return=stub follows it to its return", b"--skip-refused arms the other"):
            self.assertIn(part, refused.stderr)
        output = self.path("trace")
        tracer = subprocess.Popen([harness.tool(), "--return=stub", "-o", output, "-n100", *words[:2], *words[3:]],
                                  stderr=subprocess.PIPE)
        self.addCleanup(harness.stop_group, tracer)
        while tracer.poll() is None:
            process.stdin.write(b"."), process.stdin.flush()
            time.sleep(0.02)
        self.assertEqual(tracer.returncode, 0, tracer.stderr.read())
        with open(output, encoding="latin-1") as file:
            self.assertRegex(file.read(), r" e: .* arg1=0x[0-9a-f]+ ns=\d+")
        process.stdin.write(b"q"), process.stdin.flush()
        self.assertEqual(process.wait(20), 7, "it goes on, and returns rightly")


class Hidden(harness.TestCase):
    """No record shows a stub's address: all are the same as without stubs."""

    SHOWN = ("p:at {0}:looks $stack0 a=+0(%sp) b=+0(%sp):symbol c=+0(%sp):x64[2] d=+0(+0(%sp)):x8[6] e=+0($stack0):u64",
             "r:back {0}:looks $retval ip=%ip name=%ip:symbol was=entry(+0(%sp)) f=entry($stack0):symbol",
             "r:again {0}:looks", "p:given {0}:shows %di name=%di:symbol by_frame=+8(%bp) $comm",
             "p:text {0}:shows at=+0(%di):x32 t=\\\"x\" s=%di:symbol", "p:seen {0}:shows %di")
    LEADS = ("r:leads {0}:leads $retval ns=$latency", "r:leads_on {0}:leads_on $retval")

    def shown(self, program, definitions, *options):
        seen = harness.run_tool([text.format(program) for text in definitions], [program],
                                ["--return=auto", *options], randomise=False)
        self.assertEqual((seen.returncode, seen.stdout), (7, b"880\n"), seen.stderr)
        return seen

    def test_addresses_are_the_programs(self):
        program = self.copy_of(harness.fixture("shown"))
        for tier in ("auto", "int3"):
            for shown in (self.SHOWN, *((one,) for one in self.SHOWN)):
                with self.subTest(tier, shown=shown):
                    alone = self.shown(program, shown, f"--tier={tier}")
                    beside = self.shown(program, [*shown, *self.LEADS], f"--tier={tier}")
                    names = {text.split()[0].split(":")[1] for text in shown}
                    texts = [[f"{hit.event}: {hit.rest}" for hit in seen.hits if hit.event in names] for seen in (alone, beside)]
                    self.assertEqual(*texts)
                    self.assertEqual(len(texts[0]), 40 * len(shown))
                    self.assertEqual({name: count for name, count in beside.counts().items() if name not in names},
                                     {"leads": 40, "leads_on": 20})

    def test_filters_know_them_so(self):
        """Both when the filter tests the record and when it tests the program's registers."""
        program = self.copy_of(harness.fixture("shown"))
        for filtered in ("p:at {0}:looks s=$stack0", "p:at {0}:looks s=+0(%sp):x64", "p:at {0}:shows s=%di"):
            with self.subTest(filtered):
                address = self.shown(program, [filtered]).hits[0].arguments.removeprefix("s=")
                alone = self.filtered(program, [filtered], f"s=={address}")
                self.assertGreater(alone, 0)
                self.assertEqual(self.filtered(program, [filtered, *self.LEADS], f"s=={address}"), alone)

    def filtered(self, program, definitions, text):
        first, *others = ["-p" + definition.format(program) for definition in definitions]
        output = self.path("trace")
        seen = harness.run([*harness.tracer("--return=auto", "-o", output), first, "--filter=" + text, *others, "--", program],
                           before_exec=harness.fixed_layout)
        self.assertEqual(seen.returncode, 7, seen.stderr)
        with open(output, encoding="latin-1") as file:
            return sum(" at: " in line for line in file)


def add_modes():
    for mode in EXPECTED:
        def test(self, mode=mode):
            for name in programs(self):
                if mode == "next_symbol" and name == "frames_static":
                    continue
                if mode == "recursion" and name != programs(self)[0] and not harness.LONG:
                    continue  # two million records
                with self.subTest(name):
                    self.check_counts(self.run_mode(name, mode), mode)
        setattr(Frames, f"test_{mode}", test)


class Choice(harness.TestCase):
    """The mode that is chosen without an option, and the reason."""

    def planned(self, definition, *options):
        seen = harness.run([harness.tool(), "--dry-run", *options, "-p", definition])
        return seen.returncode, (seen.stdout + seen.stderr).decode()

    def test_a_stub_where_exits_do_not_do(self):
        program = harness.fixture("frames_gcc")
        libc = harness.libc_of(program)
        self.assertRegex(self.planned(f"r {program}:deep $retval")[1], r"by    \d exits?: ")
        self.assertIn("by    a stub", self.planned(f"r {program}:deep $retval", "--return=stub")[1])
        self.assertRegex(self.planned(f"r {libc}:strdup")[1], r"by    \d exits?: ")
        self.assertIn("by    a stub", self.planned(f"r {libc}:strdup $retval")[1])
        code, text = self.planned(f"r {libc}:strdup $retval", "--return=exits")
        self.assertEqual(code, 125)
        self.assertIn("in another function, which returns for it", text)
        code, text = self.planned(f"r {libc}:dlsym $retval", "--return=stub")
        self.assertEqual(code, 125)
        self.assertIn("reads its own return address", text)
        code, text = self.planned(f"r {program}:_start", "--return=stub")
        self.assertEqual(code, 125)
        self.assertIn("it has no caller", text)

    def run_callers(self, name, mode):
        program = self.copy_of(harness.fixture(name))
        alone = harness.run([program])
        seen = harness.run_tool([f"{kind}:{kind}_tailing {program}:tailing {'$retval' if kind == 'r' else '%di'}" for kind in "pr"],
                                [program], ["--return=" + mode])
        self.assertEqual((seen.returncode, seen.stdout), (alone.returncode, alone.stdout), seen.stderr)
        missed = NOT_FOLLOWED.findall(seen.stderr)
        return seen.counts(), [hit.rest.split(") ")[1] for hit in seen.hits
                                if hit.event == "r_tailing"], missed, seen.stderr

    def test_callers_without_unwind_information(self):
        """Code that a program has made itself may know its callers by their return addresses."""
        counts, values, missed, _ = self.run_callers("callers_", "auto")
        self.assertEqual(counts, {"p_tailing": 150, "r_tailing": 50})
        self.assertEqual(values, [f"arg1={2 * (i + 1):#x}" for i in range(50)])
        self.assertEqual(missed, [(b"tailing", b"100")])
        counts, _, missed, _ = self.run_callers("callers_", "stub")
        self.assertEqual((counts, missed), ({"p_tailing": 150, "r_tailing": 150}, []))

    def test_a_program_that_may_unwind_by_itself(self):
        counts, _, missed, told = self.run_callers("callers_objects", "auto")
        self.assertEqual((counts, missed), ({"p_tailing": 150}, [(b"tailing", b"150")]))
        self.assertIn(b"returns in this process are not followed", told)
        self.assertEqual(self.run_callers("callers_objects", "stub")[0], {"p_tailing": 150, "r_tailing": 150})

    def test_virtual_machines_know_their_stacks(self):
        for pattern, symbol in (("/usr/lib/jvm/*/lib/server/libjvm.so", "JNI_CreateJavaVM"),
                                ("/usr/bin/node", "_ZN2v82V810GetVersionEv")):
            for library in glob.glob(pattern)[:1]:
                with self.subTest(library):
                    code, text = self.planned(f"r {library}:{symbol}", "--return=stub")
                    self.assertEqual(code, 125)
                    self.assertIn("knows the return addresses", text)

    def test_a_static_program_without_symbols(self):
        """The tool cannot know how exceptions pass there."""
        program = harness.fixture("subject_static_pie_stripped")
        offset = Elf(harness.fixture("subject_static_pie")).offset_of("take_numbers")
        seen = harness.run_tool([f"r:e {program}:{offset:#x}"], [program])
        self.assertEqual((seen.returncode, seen.stdout), (125, b""))
        self.assertIn(b"exceptions would not pass its return stub", seen.stderr)

    def test_static_programs_without_section_headers(self):
        """Exits if unwind information shows the function; else the reason, and nothing of the program runs."""
        drop = os.path.join(harness.Options.source, "tests/e2e/fixtures/drop_section_headers.py")
        for name, exits, reason in (("subject_static_pie", True, b"exceptions would not pass its return stub"),
                                    ("subject_static", False, b"a return probe belongs at the beginning of a function")):
            with self.subTest(name):
                offset = Elf(harness.fixture(name)).offset_of("take_numbers")
                stripped, program = self.path("stripped"), self.path("program")
                subprocess.run([harness.need("strip"), "-o", stripped, harness.fixture(name)], check=True)
                subprocess.run([sys.executable, drop, stripped, program], check=True)
                os.chmod(program, 0o755)
                alone = harness.run([program, "calls", "23"])
                for mode in ("exits", "stub"):
                    seen = harness.run_tool([f"r:e {program}:{offset:#x}"], [program, "calls", "23"], ["--return=" + mode])
                    if exits and mode == "exits":
                        self.assertEqual((seen.returncode, seen.stdout), (alone.returncode, alone.stdout), seen.stderr)
                        self.assertEqual(seen.counts()["e"], self.hits_of(name))
                    else:
                        self.assertEqual((seen.returncode, seen.stdout), (125, b""))
                        self.assertIn(reason, seen.stderr)

    def hits_of(self, name):
        program = harness.fixture(name)
        return harness.run_tool([f"r:e {program}:take_numbers"], [program, "calls", "23"], ["--return=exits"]).counts()["e"]


add_modes()
harness.Options.returns = "stub"
if __name__ == "__main__":
    harness.main()
