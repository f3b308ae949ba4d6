# SPDX-License-Identifier: MIT
"""--sample, --rate and --min-latency: what is recorded of a known number of calls, and that the rest is counted."""
import collections
import re

import harness

SUMMARY = re.compile(r"uprobes/(\w+) \S+: ([\d,]+) hits?(.*)")
LEFT_OUT = {" of them sampled": "sampled", " too short": "short", " over the rate": "over", " filtered": "filtered"}


def number(text):
    return int(text.replace(",", ""))


class Thinned(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.program = self.copy_of(harness.fixture("callers"))

    def trace(self, options, definitions, *words):
        """The trace, and the counts of each event in the summary."""
        seen = harness.run_tool([definition.replace("PROG", self.program) for definition in definitions],
                                [self.program, *map(str, words)], options)
        self.assertEqual((seen.returncode, seen.stdout), (0, b"done\n"), seen.stderr)
        counts = {}
        for name, hits, rest in SUMMARY.findall(seen.stderr.decode()):
            counts[name] = collections.Counter({"hits": number(hits)})
            for part in rest.split(", ")[1:] if rest else ():
                value, word = re.match(r"([\d,]+)(.*)", part).groups()
                counts[name][LEFT_OUT[word]] = number(value)
        return seen, counts


class Samples(Thinned):
    def check_share(self, recorded, all_of_them, one_in):
        """Eight standard deviations: a right share is outside once in 10^15 runs."""
        mean = all_of_them / one_in
        self.assertLess(abs(recorded - mean), 8 * (mean * (1 - 1 / one_in)) ** 0.5 + 1)

    def test_one_of_ten_hits(self):
        seen, counts = self.trace(["--sample=1/10"], ["p:inner PROG:inner n=%di"], "nest", 10000)
        recorded = seen.counts()["inner"]
        self.assertEqual(counts["inner"], {"hits": 20000, "sampled": recorded})
        self.check_share(recorded, 20000, 10)

    def test_entry_and_return_stay_together(self):
        seen, counts = self.trace(["--sample=1/7"], ["p:outer PROG:outer n=%di", "r:back PROG:outer $latency", "r:again PROG:outer"],
                                  "nest", 2000, 4)
        calls = seen.counts()
        self.assertEqual(calls["outer"], calls["back"])
        self.assertEqual(calls["outer"], calls["again"])
        for name in ("outer", "back", "again"):
            self.assertEqual(counts[name], {"hits": 8000, "sampled": calls["outer"]})
        self.check_share(calls["outer"], 8000, 7)
        threads = collections.defaultdict(list)
        for hit in sorted(seen.hits, key=lambda hit: hit.time):
            threads[hit.tid].append(hit.event)
        for events in threads.values():
            self.assertEqual(collections.Counter(events)["outer"] * 3, len(events))

    def test_recursion(self):
        seen, counts = self.trace(["--sample=1/5"], ["p:twice PROG:twice", "r:back PROG:twice"], "recurse", 11)
        self.assertEqual(seen.counts()["twice"], seen.counts()["back"])
        self.assertEqual(counts["twice"]["hits"], 2 ** 12 - 1)
        depth = 0
        for hit in seen.hits:
            depth += 1 if hit.event == "twice" else -1
            self.assertGreaterEqual(depth, 0)
        self.assertEqual(depth, 0)

    def test_calls_that_longjmp_leaves(self):
        """A call that was left leaves its choice behind: the next call in its place must not take it."""
        seen, counts = self.trace(["--sample=1/3"], ["p:leaves PROG:leaves n=%di", "r:back PROG:leaves n=$retval"], "leave", 3001)
        chosen = [int(hit.arguments.split("=")[1], 0) for hit in seen.hits if hit.event == "leaves"]
        self.assertEqual(seen.counts()["back"], sum(1 for n in chosen if n % 2 == 0))
        self.assertEqual((counts["leaves"]["hits"], counts["back"]["hits"]), (3001, 1501))

    def test_children_choose_by_themselves(self):
        seen, counts = self.trace(["--sample=1/10"], ["p:inner PROG:inner"], "fork", 3000)
        self.assertEqual(counts["inner"], {"hits": 12000, "sampled": len(seen.hits)})
        self.assertEqual(len({hit.tid for hit in seen.hits}), 2)

    def test_a_filter_chooses_among_the_sampled(self):
        seen, counts = self.trace(["--sample=1/2", "--skip-refused"], ["p:inner PROG:inner n=%di if n < 100"], "nest", 1000)
        one = counts["inner"]
        self.assertEqual((one["hits"], one["sampled"]), (2000, len(seen.hits) + one["filtered"]))
        self.check_share(len(seen.hits), 199, 2)

    def test_all_of_them(self):
        seen, counts = self.trace(["--sample=1/1"], ["p:inner PROG:inner", "r:back PROG:inner"], "nest", 50)
        self.assertEqual((seen.counts(), counts["inner"]), ({"inner": 100, "back": 100}, {"hits": 100}))

    def test_the_table_beside_it_has_all_calls(self):
        seen, _ = self.trace(["-C", "--sample=1/10"], ["p:inner PROG:inner"], "nest", 1000)
        self.assertRegex(seen.stderr.decode(), r"(?m)^ *2,000 .* inner$")
        self.assertLess(len(seen.hits), 1000)


class Rates(Thinned):
    def test_a_burst_and_then_no_more(self):
        """Of a rate of one, a program that is shorter than a second has one record for each second that has begun."""
        seen, counts = self.trace(["--rate=1/s"], ["p:inner PROG:inner", "p:outer PROG:outer"], "nest", 5000, 2)
        for name, hits in (("inner", 20000), ("outer", 10000)):
            times = [hit.time for hit in seen.hits if hit.event == name]
            self.assertGreaterEqual(len(times), 1)
            self.assertTrue(all(b - a > 0.999 for a, b in zip(times, times[1:])), times)
            self.assertEqual(counts[name], {"hits": hits, "over": hits - len(times)})

    def test_a_tenth_of_a_second_at_once(self):
        seen, counts = self.trace(["--rate=1000/s"], ["p:inner PROG:inner"], "nest", 20000)
        times = [hit.time for hit in seen.hits]
        self.assertGreaterEqual(len(times), 100)
        for first, last in zip(times, times[101:]):
            self.assertGreater(last - first, 0.0009)
        self.assertEqual(counts["inner"], {"hits": 40000, "over": 40000 - len(times)})

    def test_dropped_hits_take_no_turn(self):
        seen, counts = self.trace(["--rate=1/s"], ["p:inner PROG:inner n=%di if n == 77"], "nest", 77)
        self.assertEqual((len(seen.hits), counts["inner"]), (1, {"hits": 154, "filtered": 153}))


class Latencies(Thinned):
    def test_short_calls_are_left_out(self):
        seen, counts = self.trace(["--min-latency=250us"], ["r:back PROG:spins latency=$latency n=entry($arg1):u64"], "spin", 40)
        for hit in seen.hits:
            self.assertGreaterEqual(int(re.search(r"latency=(\d+)", hit.rest)[1]), 250000)
        self.assertGreaterEqual(sum("n=300000" in hit.rest for hit in seen.hits), 10)
        self.assertEqual(counts["back"], {"hits": 40, "short": 40 - len(seen.hits)})

    def test_without_a_value_of_the_entry(self):
        seen, counts = self.trace(["--min-latency=1h"], ["r:back PROG:spins"], "spin", 3)
        self.assertEqual((seen.hits, counts["back"]), ([], {"hits": 3, "short": 3}))

    def test_recorded(self):
        words = [*harness.tracer("--min-latency=250us", f"--record={self.path('recording')}"), "-p", f"r:back {self.program}:spins",
                 "--", self.program, "spin", "40"]
        self.assertEqual(harness.run(words).returncode, 0)
        replayed = harness.parse_trace(harness.run([harness.tool(), f"--replay={self.path('recording')}"]).stdout.decode())
        self.assertTrue(10 <= len(replayed) <= 40)


class Words(Thinned):
    def test_what_does_not_go_together(self):
        for words, answer in ((["--sample=0"], "'0' is not a share of the calls"), (["--sample=2/3"], "'2/3' is not a share"),
                              (["--sample=1/4294967296"], "is not a share"), (["--rate=0/s"], "'0/s' is not a rate"),
                              (["--rate=9m"], "is not a rate"), (["-c", "--rate=5/s"], "-c counts all calls, and records none"),
                              (["--check", "--sample=1/5"], "it chooses what a program that runs records"),
                              (["--control=x", "--sample=1/5"], "it chooses what a program that runs records"),
                              (["--min-latency=1ms"], "--min-latency chooses among returns")):
            seen = harness.run([harness.tool(), *words, "-p", f"p:inner {self.program}:inner", self.program, "nest", "1"])
            self.assertEqual(seen.returncode, 125, words)
            self.assertIn(answer, seen.stderr.decode())


if __name__ == "__main__":
    harness.main()
