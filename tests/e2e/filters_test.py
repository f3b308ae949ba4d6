# SPDX-License-Identifier: MIT
"""Filters: the recorded answers of a kernel (tests/data/kernel-filters.tsv), and this machine's kernel with filters that
are not in the recorded corpus: which are refused and how, and which hits pass.

By hand, for longer: FILTER_SEED=7 FILTER_CASES=2000 ...
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
from traces_test import unescape

SEED = int(os.environ.get("FILTER_SEED", "1"))
CASES = int(os.environ.get("FILTER_CASES", "2000" if harness.LONG else "200"))
CALLS = {"1": "args", "4294967295": "argsneg"}  # by the argument u
PLACE = "t_args"
FIELDS = {"u": "u=%di:u32", "s": "s=%si:s32", "str": "str=@0x20000200:string", "x": "x=%dx",
          "arr": "arr=@0x20000038:x16[2]", "sarr": "sarr=@0x20000070:string[2]", "c": "c=$comm", "ch": "ch=%di:char"}
# The kernel counts how often preemption was forbidden at its hits; a program has nothing like it.
OF_THE_KERNEL = {"common_preempt_count == 0"}
ORDINARY_CHARACTERS = "+-0x:()[]@%$\\\"'=/.,_u1b \t~#*&|!<>?{}\xa0\xe9"
PIECES = [" && ", " || ", "!", "(", ")", "u == 1", "s < -1", "x >= 3", "ch & 0x80", 'str ~ "h*"', "str != 'hello'", "arr > 5",
          "sarr == \"\"", 'c ~ "*t"', "cpu < 9", "CPU & CPUS{0-1}", "u & CPUS{1}", "common_pid > 0", "COMM ~ '?o*'",
          "comm ~ \"*get\"", "__probe_ip != 0", "common_type", "0xffffffff", "-1", "18446744073709551615", ".ustring", "'",
          '"', "CPUS{", "}", "CPUS{all}", "CPUS{0,1}", "==", "!=", "~", "<=", "&", "4294967297", "08", "[a-h]", "\\", "?", "*",
          '"[g-i]ello"', '"*e?l*"', '"!h*"', '"1*"', "stacktrace == 0", "s.function == 0x10", "nope"]


def read_rows():
    path = os.path.join(harness.Options.source, "tests/data/kernel-filters.tsv")
    with open(path, encoding="latin-1", newline="\n") as file:
        rows = [[unescape(column) for column in line.rstrip("\n").split("\t")] for line in file]
    return [row for row in rows[1:] if row[0] not in OF_THE_KERNEL]


def accepted(rows):
    """Filters and the hits that pass; the process that makes the calls is not known before it runs."""
    return [(text, calls) for text, write, calls, _ in rows if write == "ok" and "@PID@" not in text]


class Corpus(corpus.Target):
    def event(self, name="e", fields=FIELDS):
        return " ".join([f"p:{name} {self.program}:{PLACE}", *(FIELDS[field] for field in fields)])

    def run_filtered(self, events, calls=("args", "argsneg")):
        """(definition, filter) each -> event -> the calls that passed; and the lines of the summary."""
        trace = self.path("trace")
        words = harness.tracer("-v", "-o", trace)
        for definition, text in events:
            words += ["-p", definition, f"--filter={text}"]
        done = harness.run([word.encode("latin-1") for word in [*words, "--", self.program, *calls]])
        self.assertEqual(done.returncode, 0, done.stderr)
        passed = {}
        with open(trace, encoding="latin-1") as file:
            text = file.read()
        for event, u in re.findall(r": (\w+): \(0x\w+\) u=(\d+)", text):
            passed.setdefault(event, []).append(CALLS[u])
        return {event: ",".join(calls) for event, calls in passed.items()}, done.stderr.decode("latin-1")

    def check_alone(self, text):
        done = subprocess.run([word.encode("latin-1") for word in
                               [harness.tool(), "--check", "--json", "-p", self.event(), f"--filter={text}"]],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=harness.TIMEOUT, check=False)
        return json.loads(done.stdout)


class Recorded(Corpus):
    def test_all_at_once(self):
        rows = accepted(read_rows())
        self.assertGreater(len(rows), 80)
        passed, summary = self.run_filtered([(self.event(f"f{i}"), text) for i, (text, _) in enumerate(rows)])
        for i, (text, calls) in enumerate(rows):
            self.assertEqual(passed.get(f"f{i}", ""), calls, text)
            filtered = 2 - len([call for call in calls.split(",") if call])
            self.assertRegex(summary, rf"/f{i} .*: 2 hits{f', {filtered} filtered' if filtered else ''}\n")

    def test_each_alone(self):
        """If only registers are needed, and one event stands at the place, no agent is needed."""
        for text, calls in accepted(read_rows()):
            words = set(re.findall(r"\w+", text))
            fields = ["u", *(field for field in FIELDS if field != "u" and field in words)]
            with self.subTest(filter=text):
                passed, _ = self.run_filtered([(self.event(fields=fields), text)])
                self.assertEqual(passed.get("e", ""), calls)

    def test_refusals(self):
        for text, write, _, held in read_rows():
            told = self.check_alone(text.replace("@PID@", "1"))
            with self.subTest(filter=text):
                self.assertEqual(told["errno"], None if write == "ok" else write)
                if write == "ok":
                    continue
                caret = "" if told["caret"] is None else "\n" + " " * told["caret"] + "^"
                self.assertEqual(f"{text.rstrip()}{caret}\n{told['error']}\n\n", held)

    def test_a_mistake_starts_nothing(self):
        done = harness.run([*harness.tracer("-p", self.event()), "--filter=u == 1 && nope == 2", "--", "/bin/false"])
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"--filter: Field not found\n  u == 1 && nope == 2\n                 ^\n", done.stderr)

    def test_the_filter_is_of_the_event_before_it(self):
        events = [(self.event("first"), "u == 1"), (self.event("second"), "u != 1"), (self.event("third"), "0")]
        passed, _ = self.run_filtered(events)
        self.assertEqual(passed, {"first": "args", "second": "argsneg", "third": "args,argsneg"})

    def test_a_task_that_changes_its_name(self):
        passed, _ = self.run_filtered([(self.event("old"), 'comm ~ "corpus*"'), (self.event("new"), 'comm == "renamed"')],
                                      ("args", "comm=renamed", "args"))
        self.assertEqual(passed, {"old": "args", "new": "args"})


class Threads(harness.TestCase):
    """With rseq and without it, in threads and in children."""

    def check(self, shape, command, expected_hits):
        program = self.copy_of(harness.fixture(shape))
        trace = self.path("trace")
        done = harness.run([*harness.tracer("-o", trace), "--overflow=wait:1m",  # threads without rseq claim rings
                            "-p", f"p:n {program}:take_numbers a=%di:u64", "--filter=a < 7",
                            "-p", f"p:t {program}:take_text text=+0(%di):string", '--filter=text ~ "*[37] *"', "--",
                            program, *command])
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(trace, encoding="latin-1") as file:
            numbers = [int(a) for a in re.findall(r": n: \(0x\w+\) a=(\d+)", file.read())]
        self.assertEqual(sorted(numbers), sorted(list(range(7)) * (expected_hits // 300)))
        self.assertRegex(done.stderr.decode(), rf"/n .*: {expected_hits:,} hits, {expected_hits - len(numbers):,} filtered\n")
        self.assertRegex(done.stderr.decode(), rf"/t .*: {expected_hits:,} hits, [0-9,]+ filtered\n")

    def test_threads(self):
        for shape in ("subject", "subject_static", "subject_musl"):
            with self.subTest(shape=shape):
                self.check(shape, ["threads", "8", "300"], 2400)

    def test_children(self):
        for shape in ("subject", "subject_musl"):
            with self.subTest(shape=shape):
                self.check(shape, ["forks", "3", "300"], 1200)


class Kernel:
    """An event of the running kernel whose filter is written again and again, and a program that makes the calls."""

    def __init__(self, test):
        self.oracle = oracle.Oracle([test.event()], everybody=True)
        self.program = test.program

    def __enter__(self):
        self.oracle.__enter__()
        self.process = subprocess.Popen([self.program, "run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()
        self.path = f"{self.oracle.instance}/events/{self.oracle.group}/e/filter"
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()
        self.oracle.__exit__()

    def ask(self, text):
        """As --check --json says it."""
        failed = None
        try:
            oracle.put(self.path, text)
        except OSError as error:
            failed = errno.errorcode[error.errno]
        with open(self.path, encoding="latin-1", newline="\n") as file:
            held = file.read()
        if failed is None:
            return {"errno": None, "error": None, "caret": None}
        match = re.fullmatch(r".*?\n(?:( *)\^\n)?(parse_error: .*|Error: .*)\n\n", held, re.S)
        return {"errno": failed, "error": match[2], "caret": None if match[1] is None else len(match[1])}

    def passing(self):
        open(f"{self.oracle.instance}/trace", "w", encoding="ascii").close()
        self.process.stdin.write("args argsneg\n")
        self.process.stdin.flush()
        self.process.stdout.readline()
        return ",".join(CALLS[u] for u in re.findall(r" u=(\d+) ", self.oracle.read_trace()))


class Maker:
    def __init__(self, texts, seed):
        self.random = random.Random(seed)
        self.texts = texts

    def make(self):
        while True:
            text = self.term() if self.random.random() < 0.5 else self.random.choice(self.texts)
            for _ in range(self.random.choice([0, 1, 1, 2])):
                text = self.random.choice([self.character, self.piece, self.another])(text)
            # An "a || b &&" without an end makes 6.18 read before its list and warn; an empty write is none.
            if text.strip(" \t\xa0!") and not text.rstrip(" \t\xa0!(").endswith("&") and len(text) < 400 and \
                    not re.search(r"[\n\0]|^\s*0\s*$", text):
                return text

    def term(self):
        return "".join(self.random.choice(PIECES) for _ in range(self.random.randint(1, 5)))

    def character(self, text):
        at = self.random.randint(0, len(text))
        if self.random.random() < 0.4:
            return text[:at] + text[at + 1:]
        return text[:at] + self.random.choice(ORDINARY_CHARACTERS) + text[at:]

    def piece(self, text):
        at = self.random.randint(0, len(text))
        return text[:at] + self.random.choice(PIECES) + text[at:]

    def another(self, text):
        return text + self.random.choice([" && ", " || ", " && !", " || ("]) + self.random.choice(self.texts)


class Live(Corpus):
    def setUp(self):
        super().setUp()
        oracle.require()

    def test_made_filters(self):
        maker = Maker([row[0] for row in read_rows() if "@PID@" not in row[0] and row[0].strip()], SEED)
        different, passing = [], []
        with Kernel(self) as kernel:
            for _ in range(CASES):
                text = maker.make()
                expected = kernel.ask(text)
                told = self.check_alone(text)
                if {key: told[key] for key in expected} != expected:
                    different.append((text, told, expected))
                elif told["accepted"]:
                    passing.append((text, kernel.passing()))
        self.assertEqual(different, [])
        self.assertGreater(len(passing), CASES // 10, "hardly any of the filters are good ones")
        passed, _ = self.run_filtered([(self.event(f"f{i}"), text) for i, (text, _) in enumerate(passing)])
        for i, (text, calls) in enumerate(passing):
            if "common_preempt_count" not in text and "common_flags" not in text:
                self.assertEqual(passed.get(f"f{i}", ""), calls, text)

    def test_filtered_hits_are_hits(self):
        with Kernel(self) as kernel:
            kernel.ask("u == 1")
            self.assertEqual(kernel.passing(), "args")
            expected = kernel.oracle.read_profile()
        done = harness.run([*harness.tracer("--profile", "-p", self.event(), "-o", "/dev/null"), "--filter=u == 1", "--",
                            self.program, "args", "argsneg"])
        self.assertEqual(expected, {"e": 2})
        self.assertRegex(done.stderr.decode(), r" e +2 +0\n")


class Conditions(harness.TestCase):
    """`if EXPR` after a definition, wherever definitions are read."""

    def setUp(self):
        super().setUp()
        self.program = harness.fixture("vectors")
        self.line = f"p:e {self.program}:marked n=%di:s32 if n == 3 || n == 5  # the others not"

    def traced(self, *words, env=None):
        """The n of each record; the tool's messages."""
        trace = self.path("trace")
        if os.path.exists(trace):
            os.unlink(trace)
        words = [*harness.tracer("-o", trace), *words, "--"] if env is None else []
        done = harness.run([*words, self.program, "8"], env=env and {**env, "UPROBE_OUTPUT": trace})
        self.assertEqual((done.returncode, done.stdout), (0, b"8\n"), done.stderr)
        with open(trace, encoding="latin-1") as file:
            return re.findall(r": e: \(0x\w+\) n=(-?\d+)", file.read()), done.stderr.decode("latin-1")

    def test_in_an_option_and_in_a_file(self):
        file = self.write("probes", f"# two\np:other {self.program}:marked\n{self.line}\n")
        for words in (["-p", self.line], ["-i", file]):
            values, said = self.traced(*words)
            self.assertEqual(values, ["3", "5"])
            self.assertIn("uprobes/e", said)
            self.assertIn(": 8 hits, 6 filtered", said)
        self.assertIn("uprobes/other", said)

    def test_a_filter_after_it_takes_its_place(self):
        self.assertEqual(self.traced("-p", self.line, "--filter", "n > 5")[0], ["6", "7"])

    def test_by_ld_preload(self):
        file = self.write("probes", self.line + "\n")
        for variables in ({"UPROBE_PROBES": self.line}, {"UPROBE_PROBES_FILE": file}):
            self.assertEqual(self.traced(env=harness.preloaded(**variables))[0], ["3", "5"])
        both = f'p:d {self.program}:marked;p:e {self.program}:marked n=%di:s32 if comm == "a;b" || n == 4;p:f {self.program}:marked'
        self.assertEqual(self.traced(env=harness.preloaded(UPROBE_PROBES=both))[0], ["4"])

    def test_function_events_and_patterns(self):
        done = harness.run([*harness.tracer("-q", "-F", f"{self.program}:marked(int n) if n == 4", "-p",
                                            f"p:* {self.program}:mark?d n=%di:s32 if n == 6"), "--", self.program, "8"])
        lines = [line.split(": ", 1)[1] for line in done.stderr.decode().splitlines() if not line.startswith("#")]
        self.assertEqual([re.sub("0x[0-9a-f]+", "X", line) for line in lines], ["check->marked(n=4)", "marked: (X) n=6"])

    def test_mistakes_have_their_place(self):
        for end, caret in (("if m == 3", "m == 3"), ("if n ==", "n =="), ("if", "if")):
            definition = f"p:e {self.program}:marked n=%di {end}"
            file = self.write("probes", f"\n# two\n{definition}  # none\n")
            for words, place in ((["-p", definition], "-p"), (["-i", file], f"{file}:3")):
                for check in ([], ["--check"]):
                    done = harness.run([harness.tool(), *check, *words, self.program, "8"])
                    self.assertEqual((done.returncode, done.stdout), (125, b""), end)
                    self.assertTrue(done.stderr.decode().startswith(f"uprobe-run: {place}: "), done.stderr)
                    self.assertIn(caret, done.stderr.decode().splitlines()[1])


class OfTheEntry(harness.TestCase):
    DEEP, MISSING = 1_000_001, "(missing)"

    def recorded(self, *options):
        """How many records of a recursion too deep for all its entry records, and how many have none."""
        program = self.copy_of(harness.fixture("frames_gcc"))
        done = harness.run([*harness.tracer("-b256M", "-o", self.path("trace"), "-p", f"r:deep {program}:deep ns=$latency"), *options,
                            "--", program, "recursion"])
        self.assertEqual(done.returncode, 7, done.stderr)
        with open(self.path("trace"), encoding="latin-1") as file:
            lines = [line for line in file if not line.startswith("#")]
        return len(lines), sum(self.MISSING in line for line in lines), done.stderr.decode()

    def test_what_is_missing_passes_no_filter(self):
        everything, missing, _ = self.recorded()
        self.assertEqual(everything, self.DEEP)
        self.assertGreater(missing, 0)
        for text in ("ns >= 0", "ns < 1000000000000 || common_pid > 0"):
            with self.subTest(text):
                self.assertEqual(self.recorded("--filter=" + text)[:2], (self.DEEP - missing, 0))
        self.assertEqual(self.recorded("--filter=common_pid > 0")[:2], (self.DEEP, missing))


if __name__ == "__main__":
    harness.main()
