# SPDX-License-Identifier: MIT
"""Triggers: their refusals, and the hits that are recorded under them, on this machine's kernel and by the tool.

By hand, for longer: TRIGGER_SEED=7 TRIGGER_CASES=300 ...
"""
import errno
import json
import os
import random
import re
import subprocess

import corpus
import harness
import oracle

SEED = int(os.environ.get("TRIGGER_SEED", "1"))
CASES = int(os.environ.get("TRIGGER_CASES", "200" if harness.LONG else "25"))
EVENTS = {"a": "t_args u=%di:u32 s=%si:s32 x=%dx", "r": "t_ret u=%di:u32", "p": "t_ptr u=%di:u32"}
CALLS = ["args", "argsneg", "ret=5", "ret=6", "ret=7", "hello", "args", "ret=5", "comm=worker", "comm=w", "comm=a name of 15 b"]
NAMES = ['comm == "worker"', 'comm ~ "w*"', 'COMM != "w"', 'comm ~ "*e*" && common_pid > 0', '!(comm ~ "corpus*") || cpu > 4096']
CONDITIONS = {"a": ["u == 1", "s < 0", "x == 3 || u > 5", "!(u == 1)"], "r": ["u == 5", "u >= 6", "u & 1"], "p": ["u > 0", "u == 0"]}
for conditions in CONDITIONS.values():
    conditions += NAMES
WORDS = ["traceon", "traceoff", "enable_event:{g}:a", "disable_event:{g}:r", "enable_event:{g}:p", "stacktrace"]
MISTAKES = ["", "traceon:", "traceon:x", "traceon:1x", "traceon:1:2", "traceon: 1", "traceon 1", "traceon:0x10", "traceon:-1",
            "traceon:18446744073709551616", "traceon:1 if", "traceon if", "traceon if ", "traceon iff u == 1", "traceon:1 u == 1",
            "traceonx", "Traceon", "trace", "enable_event", "enable_event:", "enable_event:{g}", "enable_event:{g}:",
            "enable_event:{g}:a:", "enable_event:{g}:a:1", "enable_event:{g}:a:x", "enable_event:{g}:nope", "enable_event:nope:a",
            "enable_event :{g}:a", "enable_event:{g}:a if u == 1", "enable_event:{g}:a:3 if u == 1", "enable_event:{g}:a 3",
            "disable_event:{g}:a:1:2", "traceoff if u == ", "traceoff if nope == 1", "traceoff if (u == 1", "traceoff if u == 1)",
            " traceon", "traceon ", "traceon\t:1", "traceon:1\tif u == 1", "traceon  if  u == 1", "traceon if u == 1 &&",
            "hist", "snapshot", "enable_hist:{g}:a", "traceon:+1", "traceon:1 if 0", "traceon:07", "traceon:08",
            "stacktrace", "stacktrace:", "stacktrace:1", "stacktrace:x", "stacktrace 1", "stacktrace:2 if u == 1", "stacktracex",
            "stacktrace if", "stacktrace:1:2"]


class Kernel:
    """The events in an instance of their own, enabled or not, with triggers."""

    def __init__(self, program):
        self.oracle = oracle.Oracle([f"p:{name} {program}:{event}" for name, event in EVENTS.items()], everybody=True)
        self.group = self.oracle.group

    def __enter__(self):
        self.oracle.__enter__()
        return self

    def __exit__(self, *_):
        for name in EVENTS:
            for trigger in self.triggers(name):
                self.write(name, "!" + trigger)
        self.oracle.__exit__()

    def file(self, name, which):
        return f"{self.oracle.instance}/events/{self.group}/{name}/{which}"

    def triggers(self, name):
        """The text that removes them: without the counts, "enable_event:G:E:count=1 if u == 1"."""
        with open(self.file(name, "trigger"), encoding="latin-1") as file:
            lines = [line for line in file.read().splitlines() if line and not line.startswith("#")]
        return [re.sub(r":(unlimited|count=\d+)( if .*)?$", "", line) for line in lines]

    def write(self, name, text):
        """None, or the name of an errno."""
        try:
            oracle.put(self.file(name, "trigger"), text)
        except OSError as failed:
            return errno.errorcode[failed.errno]
        return None

    def run(self, program, calls):
        subprocess.run([program, *calls], stdout=subprocess.DEVNULL, timeout=60, check=True)
        return re.findall(r": (\w): \(0x\w+\) (u=\d+)", self.oracle.read_trace())


class Triggers(corpus.Target):
    def words(self, triggers, off=(), filters=None):
        """triggers: event -> texts in which {g} is the group."""
        words = harness.tracer("-o", self.path("trace"))
        for name, event in EVENTS.items():
            words += ["-p", f"p:t/{name} {self.program}:{event}"]
            words += [f"--trigger={text.format(g='t')}" for text in triggers.get(name, ())]
            words += ["--disabled"] if name in off else []
            words += [f"--filter={filters[name]}"] if filters and name in filters else []
        return words

    def run_tool(self, calls, *scenario):
        done = harness.run([*self.words(*scenario), "--", self.program, *calls])
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("trace"), encoding="latin-1") as file:
            return re.findall(r": (\w): \(0x\w+\) (u=\d+)", file.read()), done.stderr.decode()


class Scenarios(Triggers):
    def expect(self, expected, calls, *scenario):
        seen, summary = self.run_tool(calls.split(), *scenario)
        self.assertEqual(" ".join(name + u[2:] for name, u in seen), expected)
        return summary

    def test_traceoff_lets_its_own_event_through(self):
        summary = self.expect("r5 r6", "ret=5 ret=6 ret=7 args", {"r": ["traceoff if u == 6"]})
        self.assertRegex(summary, r"t/r .*: 3 hits, 1 while off\n")
        self.assertRegex(summary, r"t/a .*: 1 hit, 1 while off\n")

    def test_traceon_comes_before_its_event(self):
        self.expect("r5 a1 r6", "ret=5 ret=6 args ret=6", {"r": ["traceoff if u == 5"], "a": ["traceon"]})

    def test_an_event_that_is_enabled_by_another(self):
        self.expect("r5 a1 r6", "ret=4 ret=5 args ret=6", {"r": ["enable_event:t:r if u == 5"]},
                    ["r"])

    def test_an_event_that_enables_itself(self):
        """The hit that enables its own event is seen if a trigger of the event tests the record."""
        self.expect("r6", "ret=5 ret=6", {"r": ["enable_event:t:r"]}, ["r"])
        self.expect("r5 r6", "ret=5 ret=6", {"r": ["enable_event:t:r if u > 0"]}, ["r"])
        self.expect("r5 r6", "ret=5 ret=6", {"r": ["enable_event:t:r", "stacktrace"]}, ["r"])

    def test_a_hit_that_turns_the_session_on(self):
        """A trigger that tests the record acts too late for its own hit, unless the record waits for a filter."""
        triggers = {"r": ["traceoff if u == 5"], "a": ["traceon if u == 1"]}
        self.expect("r5 a1", "ret=5 args args", triggers)
        self.expect("r5 a1 a1", "ret=5 args args", triggers, [], {"a": "u == 1"})
        self.expect("r5 a1", "ret=5 args args", {"r": ["traceoff"], "a": ["traceon", "stacktrace"]})

    def test_counts(self):
        self.expect("r5 a1 a1 r6 a1", "ret=5 args args ret=6 args", {"r": ["enable_event:t:a:1"]}, ["a"])
        self.expect("a1 a1", "args ret=5 args", {"a": ["enable_event:t:r:0"]}, ["r"])

    def test_a_filter_and_a_trigger_look_at_the_same_hit(self):
        self.expect("r6", "ret=5 ret=6 ret=7", {"r": ["traceoff if u == 6"]}, [], {"r": "u != 5"})
        self.expect("a1", "ret=5 ret=6 args", {"r": ["enable_event:t:a if u == 5"]}, ["a"], {"r": "u == 9"})

    def test_hits_while_off_are_hits(self):
        seen, summary = self.run_tool(["ret=5"] * 50, {"r": ["traceoff:3 if u == 5"]})
        self.assertEqual(len(seen), 1)
        self.assertRegex(summary, r"t/r .*: 50 hits, 49 while off\n")

    def test_refusals(self):
        for trigger, expected in (("enable_hist:t:a", b"the trigger 'enable_hist' is not available in this version"),
                                  ("!traceoff", b"there is no trigger to take away")):
            done = harness.run([*self.words({"a": [trigger]}), "--", "/bin/false"])
            self.assertEqual(done.returncode, 125)
            self.assertIn(b"--trigger: " + expected, done.stderr)
            checked = harness.run([*self.words({"a": [trigger]}), "--check"])
            self.assertEqual((checked.returncode, checked.stderr), (125, done.stderr))

    def test_mistakes_have_their_place(self):
        for triggers, errno, caret in ((["enable_event:nope:b:3"], "EINVAL", 13), (["traceon:18446744073709551616"], "ERANGE", 8),
                                       (["traceon:x"], "EINVAL", 8), (["traceon", "traceoff"], "EEXIST", 0)):
            checked = harness.run([*self.words({"a": triggers}), "--check", "--json"])
            told = json.loads(checked.stdout)
            self.assertEqual((told["accepted"], told["errno"], told["caret"]), (False, errno, caret), triggers)


class Names(harness.TestCase):
    """A trigger that asks for comm sees the thread's name at the hit, however it was set; or does nothing, which counts."""

    WORDS = ("hit=0", "self=worker", "hit=1", "other=w", "hit=2", "self=idle", "hit=3", "other=worker", "hit=4", "hit=5")

    def setUp(self):
        super().setUp()
        self.program = self.copy_of(harness.fixture("renamed"))
        self.hits = f"{self.program}:hit n=%di:s32"

    def recorded(self, words, *options):
        done = harness.run([*harness.tracer("-o", self.path("trace"), "--hist-file", self.path("tables")), "-p", f"p:t/e {self.hits}",
                            *options, "--", self.program, *words])
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("trace"), encoding="latin-1") as file:
            self.text = file.read()
        self.summary = done.stderr.decode()
        return "".join(re.findall(r"(?m): e: \(0x\w+\) n=(\d)", self.text))

    def test_each_hit_has_the_name_of_its_moment(self):
        self.assertEqual(self.recorded(self.WORDS, "--trigger=traceoff if comm == \"idle\"", "--trigger=enable_event:t:e if COMM ~ 'w*'",
                                       "--disabled"), "123")
        self.assertEqual(self.recorded(self.WORDS, "--trigger=enable_event:t:e if comm == \"worker\"", "--trigger=disable_event:t:f",
                                       "--disabled", "-p", f"p:t/f {self.hits}"), "12345")
        self.assertEqual(self.recorded(self.WORDS, "--trigger=disable_event:t:e if comm ~ \"*k*\" || n == 2"), "0")
        self.assertNotIn("could not read", self.summary)

    def test_stacks_of_some_names(self):
        self.recorded(self.WORDS, "--trigger=stacktrace if comm == \"worker\"")
        self.assertEqual(re.findall(r"n=(\d)\n.*<user stack trace>", self.text), ["1", "4", "5"])
        self.recorded(self.WORDS, "--trigger=stacktrace:2 if comm == \"worker\"")
        self.assertEqual(re.findall(r"n=(\d)\n.*<user stack trace>", self.text), ["1", "4"])

    def test_tables_of_names(self):
        self.recorded(self.WORDS, "--trigger=hist:keys=comm:sort=common_comm", "--trigger=hist:keys=n if comm == \"worker\"")
        with open(self.path("tables"), encoding="latin-1") as file:
            text = file.read()
        rows = re.findall(r"\{ common_comm: (\S+) *\} hitcount: *(\d+)", text)
        self.assertEqual(rows, [("idle", "1"), ("renamed", "1"), ("w", "1"), ("worker", "3")])
        self.assertEqual(sorted(re.findall(r"\{ n: *(\d+) \}", text)), ["1", "4", "5"])

    def test_where_a_filter_forbids_to_ask(self):
        words = ("self=worker", "hit=1", "filter", "hit=2", "other=w", "hit=3")
        self.assertEqual(self.recorded(words, "--trigger=disable_event:t:e if n > 1 && comm ~ \"w*\""), "123")
        self.assertRegex(self.summary, r"t/e .*: 3 hits, 2 triggers could not read comm \(seccomp filter\) or common_pid \(PID namespace\)\n")
        self.assertEqual(self.recorded(words, "--trigger=disable_event:t:e if n > 2 && comm ~ \"w*\""), "123")
        self.assertRegex(self.summary, r", 1 trigger could not read comm")
        self.assertEqual(self.recorded(words, "--trigger=traceoff if n == 2 || comm == \"x\""), "12", "the name does not matter")
        self.recorded(words, "--trigger=stacktrace if comm == \"worker\"")
        self.assertEqual(len(re.findall("<user stack trace>", self.text)), 1)
        self.recorded(words, "--trigger=hist:keys=comm", "--trigger=hist:keys=n if comm ~ \"w*\"")
        with open(self.path("tables"), encoding="latin-1") as file:
            text = file.read()
        self.assertEqual(re.findall(r"Hits: (\d+)\n *Entries: (\d+)\n *Dropped: (\d+)", text), [("1", "1", "2")] * 2)

    def test_by_breakpoints(self):
        self.assertEqual(self.recorded(self.WORDS, "--tier=int3", "--trigger=disable_event:t:e if comm == \"idle\""), "012")

    def test_as_the_kernel_does(self):
        oracle.require()
        expected = {}
        with oracle.Oracle([f"p:e {self.hits}"], everybody=True) as kernel:
            for trigger in ("traceoff if comm == \"idle\"", "disable_event:{g}:e if comm ~ \"*k*\" || n == 2",
                            "traceoff if comm ~ \"wo*\" && n > 1", "disable_event:{g}:e if COMM != \"renamed\" && COMM != \"w\""):
                where = f"{kernel.instance}/events/{kernel.group}/e"
                oracle.put(f"{kernel.instance}/trace", "\n", os.O_WRONLY | os.O_TRUNC)
                oracle.put(f"{kernel.instance}/tracing_on", "1")
                oracle.put(f"{where}/enable", "1")
                oracle.put(f"{where}/trigger", trigger.format(g=kernel.group))
                subprocess.run([self.program, *self.WORDS], timeout=60, check=True)
                expected[trigger] = "".join(re.findall(r": e: \(0x\w+\) n=(\d)", kernel.read_trace()))
                oracle.put(f"{where}/trigger", "!" + trigger.format(g=kernel.group))
        for trigger, hits in expected.items():
            self.assertEqual(self.recorded(self.WORDS, "--trigger=" + trigger.format(g="t")), hits, trigger)
        self.assertEqual(set(expected.values()), {"0123", "0", "01234"})


class Threads(harness.TestCase):
    def test_each_hit_is_recorded_or_counted(self):
        """No matter which thread turns a switch first: events that are on are recorded."""
        program = self.copy_of(harness.fixture("subject"))
        trace = self.path("trace")
        done = harness.run([*harness.tracer("-o", trace, "-b", "16M"), "-p", f"p:t/n {program}:take_numbers a=%di:u64",
                            "--trigger=traceoff if a & 4", "--trigger=disable_event:t:t:9", "-p",
                            f"p:t/t {program}:take_text", "--trigger=traceon", "--trigger=enable_event:t:t", "--",
                            program, "threads", "8", "300"])
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(trace, encoding="latin-1") as file:
            seen = re.findall(r": ([nt]): \(0x", file.read())
        for event in "nt":
            match = re.search(rf"t/{event} .*: 2,400 hits(?:, ([0-9,]+) while off)?(?:, lost ([0-9,]+) \(every ring busy\))?\n",
                              done.stderr.decode())
            self.assertTrue(match, done.stderr)
            missing = sum(int((number or "0").replace(",", "")) for number in match.groups())
            self.assertEqual(seen.count(event) + missing, 2400)
        self.assertGreater(seen.count("n"), 0)


class Live(Triggers):
    def setUp(self):
        super().setUp()
        oracle.require()

    def refused(self, text):
        done = subprocess.run([*self.words({"a": [text]}), "--dry-run"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=harness.TIMEOUT, check=False)
        return done.returncode != 0

    def test_mistakes(self):
        with Kernel(self.program) as kernel:
            for text in MISTAKES:
                if not text.strip():
                    continue
                failed = kernel.write("a", text.format(g=kernel.group))
                with self.subTest(trigger=text):
                    self.assertEqual(self.refused(text), failed is not None)
                for trigger in kernel.triggers("a"):
                    kernel.write("a", "!" + trigger)

    def test_one_of_a_kind(self):
        pairs = [("traceon", "traceoff"), ("traceon", "traceon:1"), ("enable_event:{g}:a", "disable_event:{g}:a"),
                 ("enable_event:{g}:a", "enable_event:{g}:r"), ("traceoff", "enable_event:{g}:a"),
                 ("stacktrace", "stacktrace:1"), ("stacktrace", "traceon")]
        with Kernel(self.program) as kernel:
            for pair in pairs:
                failed = [kernel.write("p", text.format(g=kernel.group)) for text in pair]
                done = subprocess.run([*self.words({"p": pair}), "--dry-run"], stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, timeout=harness.TIMEOUT, check=False)
                with self.subTest(pair=pair):
                    self.assertEqual(failed, [None, "EEXIST" if done.returncode else None])
                for trigger in kernel.triggers("p"):
                    kernel.write("p", "!" + trigger)

    def scenario(self, choose):
        triggers = {}
        for name in EVENTS:
            for word in choose.sample(WORDS, choose.choice([0, 1, 1, 2])):
                same = ("traceon", "traceoff")
                if word in same and any(text.startswith(same) for text in triggers.get(name, ())):
                    continue
                count = choose.choice(["", "", ":1", ":2", ":0"])
                condition = choose.choice(["", f" if {choose.choice(CONDITIONS[name])}"])
                triggers.setdefault(name, []).append(word + count + condition)
        off = [name for name in EVENTS if choose.random() < 0.3]
        filters = {name: choose.choice(CONDITIONS[name]) for name in EVENTS if choose.random() < 0.3}
        return triggers, off, filters

    def run_kernel(self, calls, triggers, off, filters):
        """The events are off while triggers are set: an event that one enables is told apart from one that is on."""
        with Kernel(self.program) as kernel:
            for name in off:
                oracle.put(kernel.file(name, "enable"), "0")
            for name, text in filters.items():
                oracle.put(kernel.file(name, "filter"), text)
            for name, texts in triggers.items():
                for text in texts:
                    self.assertIsNone(kernel.write(name, text.format(g=kernel.group)), text)
            return kernel.run(self.program, calls)

    def test_made_scenarios(self):
        choose = random.Random(SEED)
        records = 0
        for _ in range(CASES):
            scenario = self.scenario(choose)
            calls = [choose.choice(CALLS) for _ in range(choose.randint(5, 14))]
            expected = self.run_kernel(calls, *scenario)
            seen, _ = self.run_tool(calls, *scenario)
            self.assertEqual(seen, expected, (scenario, calls))
            records += len(seen)
        self.assertGreater(records, CASES)


if __name__ == "__main__":
    harness.main()
