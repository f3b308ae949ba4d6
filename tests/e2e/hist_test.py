# SPDX-License-Identifier: MIT
"""Histograms: their counts and their output, for programs that make a known number of calls."""
import collections
import os
import re
import signal
import subprocess
import sys

import harness

EVENT = "hit n=%di:s32 q=%si:u64 name=+0(%dx):string"


def table(trigger, entries, hits, dropped=0):
    """The text of a hist file."""
    lines = "".join(f"{text}\n" for text in entries)
    return (f"# event histogram\n#\n# trigger info: {trigger}\n#\n\n{lines}\n"
            f"Totals:\n    Hits: {hits}\n    Entries: {len(entries)}\n    Dropped: {dropped}\n")


def totals(text):
    """Of each table in a text: hits, entries, dropped."""
    return [tuple(int(number) for number in found)
            for found in re.findall(r"Totals:\n    Hits: (\d+)\n    Entries: (\d+)\n    Dropped: (\d+)\n", text)]


class Counted(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.program = self.copy_of(harness.fixture("counted"))

    def words(self, *triggers, options=(), event=EVENT):
        return [*harness.tracer("-o", self.path("trace"), "--hist-file", self.path("tables")), "-p",
                f"p:t/e {self.program}:{event}", *[f"--trigger={text}" for text in triggers], *options]

    def read(self, name):
        with open(self.path(name), encoding="latin-1") as file:
            return file.read()

    def run_tool(self, triggers, *calls, **more):
        done = harness.run([*self.words(*triggers, **more), "--", self.program, *calls])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.done = done
        return self.read("tables")

    def summary(self):
        return re.search(r"t/e .*?: (.*)", self.done.stderr.decode())[1]


class Tables(Counted):
    """`calls 7` is hit() with 0..6, their squares, and zero, one, two in turn."""

    def check(self, trigger, shown, *lines, hits=7):
        text = self.run_tool([trigger], "calls", "7")
        self.assertEqual(text, table(f"hist:{shown} [active]", lines, hits))

    def test_numbers(self):
        self.check("hist:keys=n if n > 3", "keys=n:vals=hitcount:sort=hitcount:size=2048 if n > 3",
                   *[f"{{ n: {n:10} }} hitcount:          1" for n in (4, 5, 6)], hits=3)

    def test_strings_and_sums(self):
        self.check("hist:keys=name:vals=q:sort=q.descending", "keys=name:vals=hitcount,q:sort=q.descending:size=2048",
                   f"{{ name: {'zero':50} }} hitcount:          3  q:         45",
                   f"{{ name: {'two':50} }} hitcount:          2  q:         29",
                   f"{{ name: {'one':50} }} hitcount:          2  q:         17")

    def test_powers(self):
        self.check("hist:keys=q.log2:sort=q:size=100", "keys=q.log2:vals=hitcount:sort=q.log2:size=128",
                   *[f"{{ q: ~ 2^{power}  }} hitcount: {count:10}" for power, count in
                     ((0, 2), (2, 1), (4, 2), (5, 1), (6, 1))])

    def test_percentiles(self):
        """Of 0 to 99; buckets of 64 and more are two wide."""
        text = self.run_tool(["hist:keys=n.log2=5:sort=n"], "calls", "100")
        self.assertEqual(text.splitlines()[-1], "    Percentiles: p50 ~ 49-49, p90 ~ 88-89, p99 ~ 98-99, max ~ 98-99")
        text = self.run_tool(["hist:keys=n.log2=5 if n > 1000"], "calls", "7")
        self.assertEqual(text.splitlines()[-1], "    Dropped: 0")

    def test_latencies(self):
        """The field's name needs no other fetch; an hour in nanoseconds is more than any of these calls takes."""
        hour = 3_600_000_000_000
        definition = f"r:t/r {self.program}:hit n=$entry_arg1:s32 $latency"
        words = [*harness.tracer("-o", self.path("trace"), "--hist-file", self.path("tables")), "-p", definition]
        done = harness.run([*words, f"--filter=latency < {hour}", "--trigger=hist:keys=n:vals=latency:sort=n",
                            f"--trigger=hist:keys=latency.buckets={hour}", "--", self.program, "calls", "7"])
        self.assertEqual(done.returncode, 0, done.stderr)
        tables = self.read("tables")
        sums = re.findall(r"^\{ n: +(\d+) \} hitcount: +1  latency: +(\d+)$", tables, re.M)
        self.assertEqual([int(n) for n, _ in sums], list(range(7)))
        seen = re.findall(r" r: \(.*\) n=(\d) latency=(\d+)$", self.read("trace"), re.M)
        self.assertEqual(seen, sums)
        self.assertIn(f"{{ latency: ~ 0-{hour - 1} }} hitcount:          7\n", tables)
        done = harness.run([*words, f"--filter=latency > {hour}", "--", self.program, "calls", "7"])
        self.assertIn(b"t/r ", done.stderr)
        self.assertNotIn(" latency=", self.read("trace"))

    def test_values_that_the_definition_does_not_fetch(self):
        """They become fields of the event, by the names of what they are."""
        text = self.run_tool(["hist:keys=$arg1:vals=$arg2:sort=$arg1 if arg1 >= 5"], "calls", "7", event="hit")
        self.assertEqual(text, table("hist:keys=arg1:vals=hitcount,arg2:sort=arg1:size=2048 if arg1 >= 5 [active]",
                                     [f"{{ arg1: {n:10} }} hitcount:          1  arg2: {n * n:10}" for n in (5, 6)], 2))
        self.assertIn(" arg1=0x3 arg2=0x9", self.read("trace"))
        done = harness.run([*harness.tracer("-q", "--hist-file", self.path("tables")), "-p", f"r:t/r {self.program}:hit", "--disabled",
                            "--trigger=hist:keys=$latency.log2=5", "--", self.program, "calls", "50"])
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual([hits for hits, _, _ in totals(self.read("tables"))], [50])
        self.assertIn("    Percentiles: p50 ~ ", self.read("tables"))
        done = harness.run([*self.words("hist:keys=$latency", event="hit"), "--", self.program, "calls", "7"])
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"$latency is not available on probe", done.stderr)

    def test_variables_that_the_definition_does_not_fetch(self):
        """By the debug information of the program; other names are none of its fields, as ever."""
        text = self.run_tool(["hist:keys=number:vals=square if number > 4"], "calls", "7", event="hit")
        self.assertEqual(text, table("hist:keys=number:vals=hitcount,square:sort=hitcount:size=2048 if number > 4 [active]",
                                     [f"{{ number: {n:10} }} hitcount:          1  square: {n * n:10}" for n in (5, 6)], 2))
        done = harness.run([*self.words("hist:keys=numbr", event="hit"), "--", self.program, "calls", "7"])
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"Couldn't find field", done.stderr)

    def test_buckets_and_two_sorts(self):
        self.check("hist:key=n.buckets=0x3:val=hitcount:sort=hitcount,n.descending",
                   "keys=n.buckets=3:vals=hitcount:sort=hitcount,n.buckets=3.descending:size=2048",
                   "{ n: ~ 6-8 } hitcount:          1", "{ n: ~ 3-5 } hitcount:          3", "{ n: ~ 0-2 } hitcount:          3")

    def test_two_keys(self):
        self.check("hist:keys=name,q.hex:values=hitcount,n:sort=name,q.descending if q >= 16",
                   "keys=name,q.hex:vals=hitcount,n:sort=name,q.hex.descending:size=2048 if q >= 16",
                   f"{{ name: {'one':50}, q: 10 }} hitcount:          1  n:          4",
                   f"{{ name: {'two':50}, q: 19 }} hitcount:          1  n:          5",
                   f"{{ name: {'zero':50}, q: 24 }} hitcount:          1  n:          6", hits=3)

    def test_shares_and_bars(self):
        self.check("hist:keys=name:vals=hitcount.percent,q.graph:nohitcount",
                   "keys=name:vals=hitcount.percent,q.graph:sort=hitcount:size=2048:nohitcount",
                   f"{{ name: {'one':50} }}  hitcount (%):  28.57  q: {'#' * 7:20}",
                   f"{{ name: {'two':50} }}  hitcount (%):  28.57  q: {'#' * 12:20}",
                   f"{{ name: {'zero':50} }}  hitcount (%):  42.85  q: {'#' * 20:20}")

    def test_negative_numbers_show_as_the_kernel_shows_them(self):
        text = self.run_tool(["hist:keys=m:vals=m"], "calls", "7", event=r"hit m=\-5:s32")
        line = f"{{ m: {2**64 - 5} }} hitcount:          7  m: {2**64 - 35}"
        self.assertEqual(text, table("hist:keys=m:vals=hitcount,m:sort=hitcount:size=2048 [active]", [line], 7))

    def test_symbols(self):
        text = self.run_tool(["hist:keys=__probe_ip.sym", "hist:keys=__probe_ip.sym-offset"], "calls", "7")
        self.assertRegex(text, r"\{ __probe_ip: \[[0-9a-f]+\] hit {42} \} hitcount:          7\n")
        self.assertRegex(text, r"\{ __probe_ip: \[[0-9a-f]+\] hit\+0x0/0x\w+ +\} hitcount:          7\n")
        self.assertIn("Dropped: 0\n\n\n# event histogram\n", text)

    def test_callers(self):
        text = self.run_tool(["hist:keys=common_stacktrace,name"], "calls", "7")
        frames = [rf" {{9}}{name}\+0x\w+/0x\w+\n" for name in ("hit", "inner", "outer")]
        self.assertEqual(len(re.findall(r"\{ common_stacktrace:\n" + "".join(frames) + r"( {9}.*\n)+, name: \w+ +\} hitcount:", text)), 3)
        self.assertEqual(totals(text), [(7, 3, 0)])

    def test_tasks_and_processors(self):
        text = self.run_tool(["hist:keys=common_pid.execname", "hist:keys=cpu"], "calls", "7")
        self.assertRegex(text, r"\{ common_pid: counted {9}\[ *\d+\] \} hitcount:          7\n")
        self.assertRegex(text, r"keys=common_cpu:.*\n#\n\n(\{ common_cpu: +\d+ \} hitcount: +\d+\n)+")

    def test_threads_that_nothing_else_shows(self):
        text = self.run_tool(["hist:keys=common_pid.execname"], "threads", "3", "200000", options=("--disabled",))
        self.assertEqual(re.findall(r"common_pid: (.{16})\[ *\d+\] \} hitcount: +(\d+)", text), [(f"{'counted':16}", "200000")] * 3)

    def test_what_cannot_be_read(self):
        text = self.run_tool(["hist:keys=s"], "calls", "7", event="hit s=+0(%di):string")
        self.assertEqual(text, table("hist:keys=s:vals=hitcount:sort=hitcount:size=2048 [active]",
                                     [f"{{ s: {'(fault)':50} }} hitcount:          7"], 7))

    def test_a_paused_one_counts_nothing(self):
        text = self.run_tool(["hist:keys=n:pause"], "calls", "7")
        self.assertEqual(text, table("hist:keys=n:vals=hitcount:sort=hitcount:size=2048 [paused]", [], 0))
        self.assertEqual(self.summary(), "7 hits")

    def test_returns(self):
        words = [*harness.tracer("-o", self.path("trace")), "-p", f"r:t/r {self.program}:inner n=entry($arg1):s32",
                 "--trigger=hist:keys=n", "--", self.program, "calls", "3"]
        done = harness.run(words)
        self.assertEqual(done.returncode, 0, done.stderr)
        trace = self.read("trace")
        self.assertEqual(re.findall(r"\{ n: +(\d) \} hitcount: +1\n", trace), ["0", "1", "2"])
        self.assertRegex(trace, r" r: \(0x\w+ <- 0x\w+\) n=2\n\n# event histogram\n")

    def test_events_have_tables_of_their_own(self):
        done = harness.run([*self.words("hist:keys=n", "hist:keys=q"), "-p", f"p:t/o {self.program}:outer n=%di:s32",
                            "--trigger=hist:keys=n", "--", self.program, "calls", "7"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(re.findall(r"==> .* <==|keys=\w+", self.read("tables")),
                         ["==> t/e <==", "keys=n", "keys=q", "==> t/o <==", "keys=n"])


class Stacks(harness.TestCase):
    """Stacks as keys, which the program unwinds, against the tool's unwinding of copies."""

    def run_python(self, name, *options):
        libc = harness.libc_of(sys.executable)
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        seen = harness.run([*harness.tracer("-q", "-b", "64M", *options), "-p", f"p:m {libc}:malloc", *self.last, "--", sys.executable,
                            "-I", "-S", "-c", "import json"], env=environment)
        self.assertEqual(seen.returncode, 0, seen.stderr)
        with open(self.path(name), encoding="latin-1") as file:
            return file.read()

    def test_as_the_tool_unwinds(self):
        self.last = ("--trigger=hist:keys=stacktrace:size=65536",)
        table = self.run_python("table", "-o", self.path("trace"), "--hist-file", self.path("table"))
        counted = collections.Counter()
        for frames, count in re.findall(r"\{ common_stacktrace:\n(.*?)\} hitcount: +(\d+)", table, re.S):
            names = [re.sub(r"\+0x\w+/0x\w+$", "", frame) for frame in re.findall(r"^ {9}(.*?),?$", frames, re.M)]
            counted[";".join(re.sub(r"^.*/([^/]+)\[.*\]$", r"[\1]", name) for name in reversed(names))] += int(count)
        self.last = ()
        folded = self.run_python("folded", "-k", "--overflow=wait", "--format=folded", "-o", self.path("folded"))
        unwound = collections.Counter()
        for line in folded.splitlines():
            stack, _, count = line.rpartition(" ")
            unwound[stack.partition(";")[2]] += int(count)
        self.assertEqual(totals(table)[0][2], 0)
        self.assertGreater(len(counted), 200)
        # What the tool cannot unwind are frames beyond the copy.
        self.assertGreater((counted & unwound).total(), 0.95 * unwound.total(), (counted - unwound).most_common(3))


class Counts(Counted):
    def sums(self, text):
        return {int(n): (int(hits), int(q)) for n, hits, q in re.findall(r"\{ n: +(\d+) \} hitcount: +(\d+)  q: +(\d+)", text)}

    def test_a_full_ring(self):
        """The event loses hits that find no room in its ring; the histogram does not."""
        text = self.run_tool(["hist:keys=n:vals=q"], "threads", "8", "2000", options=("-b", "8K"))
        self.assertEqual(self.sums(text), {n: (8, 8 * n * n) for n in range(2000)})
        self.assertRegex(self.summary(), r"^16,000 hits, lost ")

    def test_threads(self):
        text = self.run_tool(["hist:keys=n:vals=q"], "threads", "8", "2000")
        self.assertEqual(self.sums(text), {n: (8, 8 * n * n) for n in range(2000)})
        self.assertEqual(totals(text), [(16000, 2000, 0)])

    def test_while_the_event_is_off(self):
        text = self.run_tool(["hist:keys=name"], "threads", "8", "3000", options=("--disabled",))
        self.assertEqual(re.findall(r"name: (\w+) +\} hitcount: +(\d+)", text), [(n, "8000") for n in ("one", "two", "zero")])
        self.assertEqual(self.summary(), "24,000 hits")
        self.assertEqual(self.read("trace"), "", "no header where no record is written")

    def test_the_events_filter_is_the_events_alone(self):
        text = self.run_tool(["hist:keys=name"], "calls", "30", options=("--filter=n == 3",))
        self.assertEqual(totals(text), [(30, 3, 0)])
        self.assertEqual(self.summary(), "30 hits, 29 filtered")

    def test_beside_triggers_that_look_at_the_record(self):
        text = self.run_tool(["traceoff if n == 5", "hist:keys=n if n > 1"], "calls", "10")
        self.assertEqual(totals(text), [(8, 8, 0)])
        self.assertEqual(self.summary(), "10 hits, 4 while off")

    def test_a_full_map(self):
        text = self.run_tool(["hist:keys=n:size=128"], "calls", "1000")
        self.assertEqual(totals(text), [(128, 128, 872)])

    def test_children(self):
        text = self.run_tool(["hist:keys=common_pid", "hist:keys=n"], "forks", "5", "40")
        self.assertEqual(totals(text), [(200, 5, 0), (200, 40, 0)])

    def test_signals(self):
        text = self.run_tool(["hist:keys=name if n < 0", "hist:keys=name"], "signals", "200000", options=("--disabled",))
        handled = int(self.done.stdout)
        self.assertGreater(handled, 0)
        self.assertEqual(totals(text)[0], (handled, 1, 0))
        self.assertEqual(totals(text)[1], (200000 + handled, 4, 0))

    def test_a_program_that_is_killed(self):
        tracer = subprocess.Popen([*self.words("hist:keys=n:vals=q", options=("--disabled",)), "--", self.program, "endless"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        self.addCleanup(harness.stop_group, tracer)
        self.assertEqual(tracer.stdout.readline(), b"ready\n")
        traced = [pid for pid in harness.descendants(tracer.pid)
                  if os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(self.program)]
        os.kill(traced[0], signal.SIGKILL)
        tracer.communicate(timeout=harness.TIMEOUT)
        counted = self.sums(self.read("tables"))
        self.assertEqual(totals(self.read("tables"))[0][0], sum(hits for hits, _ in counted.values()))
        self.assertEqual(set(counted), set(range(100)))
        self.assertLessEqual(max(hits for hits, _ in counted.values()) - min(hits for hits, _ in counted.values()), 1)
        self.assertLessEqual(sum(abs(q - hits * n * n) != 0 for n, (hits, q) in counted.items()), 1)


class Refusals(Counted):
    ROWS = (
        ("hist", "keys= is missing", ""),
        ("hist:vals=n", "keys= is missing", "vals"),
        ("hist:keys=", "Empty assignment", "keys="),
        ("hist:keys=nope", "Couldn't find field", "nope"),
        ("hist:keys=n,nope", "Couldn't find field", "nope"),
        ("hist:keys=n.what", "Invalid field modifier", "what"),
        ("hist:keys=n.execname", "Invalid field modifier", "execname"),
        ("hist:keys=n.percent", "Invalid field modifier", "percent"),
        ("hist:keys=n.buckets=0", "Invalid field modifier", "buckets"),
        ("hist:keys=name.log2", "Invalid field modifier", "log2"),
        ("hist:keys=n:vals=q.log2", "Invalid field modifier", "log2"),
        ("hist:keys=n:vals=name", "only a number can be a value", "name"),
        ("hist:keys=n.syscall", "names of system calls are not available in this version", "syscall"),
        ("hist:keys=n:sort=", "Empty assignment", "sort="),
        ("hist:keys=n:sort=,n", "Empty sort field", ",n"),
        ("hist:keys=n:sort=q", "Sort field must be a key or a val", "q"),
        ("hist:keys=n:sort=n.down", "Invalid sort modifier", "down"),
        ("hist:keys=n:sort=n,n,n", "Too many sort fields (Max = 2)", "n,n,n"),
        ("hist:keys=n:size=9", "the size is a number from 65 to 131072", "9"),
        ("hist:keys=n:size=131073", "the size is a number from 65 to 131072", "131073"),
        ("hist:keys=n:nohitcount", "Non-hitcount value is required for 'nohitcount'", "nohitcount"),
        ("hist:keys=n:clear", "Can't clear or continue a nonexistent hist trigger", "clear"),
        ("hist:keys=n:cont", "Can't clear or continue a nonexistent hist trigger", "cont"),
        ("hist:keys=n:what", "a histogram has no attribute 'what'", "what"),
        ("hist:keys=n:ts0=q", "variables are not available in this version", "ts0"),
        ("hist:keys=n:name=x", "histograms with names are not available in this version", "name=x"),
        ("hist:keys=n:onmax(q).save(n)", "actions are not available in this version", "onmax"),
        ("hist:keys=n+q", "expressions and variables are not available in this version", "n+q"),
        ("hist:keys=common_timestamp", "time stamps as keys and values are not available in this version", "common_t"),
        ("hist:keys=n,q,cpu,n", "a histogram has three keys at most", "n"),
        ("hist:keys=n:vals=n,q,n", "a histogram has two values at most, besides hitcount", "n"),
        ("hist:keys=stacktrace,stacktrace", "the keys are larger than 1,280 bytes", "stacktrace"),
        ("hist:keys=n if nope == 1", "Field not found", None),
        ("hist:keys=n if", "'if FILTER' is what may follow", "if"),
    )

    def test_rows(self):
        for trigger, expected, at in self.ROWS:
            done = harness.run([*self.words(trigger), "--", "/bin/false"])
            with self.subTest(trigger=trigger):
                self.assertEqual(done.returncode, 125)
                lines = done.stderr.decode().split("\n")
                self.assertIn(f"--trigger: {expected}", lines[0])
                if at is not None:
                    shown = next(i for i, line in enumerate(lines) if line.lstrip() == trigger)
                    self.assertEqual(lines[shown + 1].index("^") - lines[shown].index(trigger), trigger.rindex(at) if at else len(trigger))
                checked = harness.run([*self.words(trigger), "--check"])
                self.assertEqual((checked.returncode, checked.stderr), (125, done.stderr))

    def test_the_same_twice(self):
        for second in ("hist:keys=n", "hist:key=n:size=512", "hist:keys=n:vals=hitcount:sort=hitcount"):
            done = harness.run([*self.words("hist:keys=n", second), "--", "/bin/false"])
            self.assertIn(b"Hist trigger already exists", done.stderr)
        self.run_tool(["hist:keys=n", "hist:keys=n if n > 2", "hist:keys=n:sort=n", "hist:keys=n:vals=q"], "calls", "3")
        done = harness.run([*self.words(*[f"hist:keys=n if n > {i}" for i in range(5)]), "--", "/bin/false"])
        self.assertIn(b"an event can have at most four histograms", done.stderr)


if __name__ == "__main__":
    harness.main()
