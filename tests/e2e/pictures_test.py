# SPDX-License-Identifier: MIT
"""Profiles, flame graphs and pages: read by the programs of their users, they show what the text shows."""
import collections
import gzip
import json
import os
import re
import subprocess
import xml.etree.ElementTree as xml

import harness
from browser import Browser

HOSTILE = "</script><img src=x onerror=document.title='in'>\"'&\\x01\\xff]]>"
SOURCE = r"""
#include <stdlib.h>
#include <pthread.h>
#define KEPT __attribute__((noinline, used))
KEPT long inner(long n, void *p) { asm volatile("" : "+r"(n) : "r"(p)); return n * 3; }
KEPT long outer(long n, const char *name) {
  long got = inner(n, &n) + inner(n + 1, &n);
  asm volatile("" : "+r"(got) : "r"(name));
  return got;
}
KEPT double level(double d) { asm volatile("" : "+x"(d)); return d; }
static long turns;
void *work(void *name) { for (long i = 0; i < turns; ++i) outer(i, name); return 0; }
int main(int c, char **v) {
  turns = atol(v[1]);
  pthread_t one;
  pthread_create(&one, 0, work, "second");
  work("TEXT");
  pthread_join(one, 0);
  for (int i = 0; i < 10; ++i) level(i * 0.5);
}
"""
HITS_OF_A_TURN = 12  # of both threads


def fields(message):
    """[(number, value)] of a message of Protocol Buffers: numbers and bytes."""
    at, found = 0, []

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = number()
        if tag & 7 == 0:
            found.append((tag >> 3, number()))
        else:
            assert tag & 7 == 2, tag
            size = number()
            found.append((tag >> 3, message[at:at + size]))
            at += size
    assert at == len(message)
    return found


def packed(message):
    return [value for _, value in fields(b"".join(b"\x08" + bytes(one) for one in varints(message)))]


def varints(message):
    one = []
    for byte in message:
        one.append(byte)
        if byte < 128:
            yield one
            one = []


class Pictures(harness.TestCase):
    stacks = False

    def setUp(self):
        super().setUp()
        harness.tool()
        source = self.write("many.c", SOURCE.replace("TEXT", HOSTILE.replace('"', '\\"')))
        self.program = harness.compiled([harness.need("cc"), "-O1", "-g", "-fno-omit-frame-pointer", source, "-lpthread"], self.path("many"))

    def record(self, turns, *triggers):
        self.recording = self.path("recording")
        words = harness.tracer("-q", "-b", "64M", f"--record={self.recording}")
        for definition in ("p:outer {0}:outer n=%di:s64 name=+0(%si):string", "r:outer_back {0}:outer got=$retval:s64",
                           "p:inner {0}:inner n=%di:s64", "r:inner_back {0}:inner got=$retval:s64", "p:level {0}:level d=%xmm0:f64"):
            words += ["-p", definition.format(self.program), *triggers]
        seen = harness.run([*words, "--", self.program, str(turns)])
        self.assertEqual((seen.returncode, seen.stderr), (0, b""))

    def replay(self, *options):
        seen = harness.run([harness.tool(), f"--replay={self.recording}", *options])
        self.assertEqual((seen.returncode, seen.stderr), (0, b""))
        return seen.stdout

    def counts_of_text(self):
        return collections.Counter(harness.EVENT.findall(self.replay().decode()))

    def page(self, name, *options):
        path = self.path(name)
        self.replay("-o", path, *options)
        return path


class Pprof(Pictures):
    def profile(self):
        parts = collections.defaultdict(list)
        for number, value in fields(gzip.decompress(self.replay("--format=pprof"))):
            parts[number].append(value)
        texts = [text.decode() for text in parts[6]]
        self.assertEqual(texts[0], "")
        functions = {one[1]: texts[one[2]] for one in (dict(fields(part)) for part in parts[5])}
        locations = {one[1]: one for one in (dict(fields(part)) for part in parts[4])}
        names = {number: functions[dict(fields(one[4]))[1]] for number, one in locations.items()}
        types = [texts[dict(fields(part))[1]] for part in parts[1]]
        samples = []
        for part in parts[2]:
            sample = collections.defaultdict(list)
            for number, value in fields(part):
                sample[number].append(value)
            samples.append(([names[one] for one in packed(sample[1][0])], packed(sample[2][0])))
        mappings = [dict(fields(part)) for part in parts[3]]
        return types, samples, [(texts[one[5]], texts[one.get(6, 0)]) for one in mappings]

    def test_calls_without_stacks(self):
        self.record(50)
        types, samples, _ = self.profile()
        self.assertEqual(types, ["hits", "time"])
        self.assertEqual(sorted((tuple(stack), values[0]) for stack, values in samples),
                         [(("inner", "outer"), 200), (("level",), 10), (("outer",), 100)])
        text = harness.parse_trace(self.replay("--events=outer*").decode())
        whole = sum(values[1] for _, values in samples)
        self.assertGreater(whole, 0)
        spans, open_calls = 0, {}
        for hit in text:
            if hit.event == "outer":
                open_calls[hit.tid] = hit.time
            else:
                spans += hit.time - open_calls[hit.tid]
        self.assertAlmostEqual(whole / 1e9, spans, delta=100 * 1e-6)

    def test_stacks_have_files_with_their_build_ids(self):
        self.record(5, "--trigger=stacktrace")
        _, samples, mappings = self.profile()
        inner = [stack for stack, _ in samples if stack[0] == "inner"]
        self.assertTrue(all(stack[1] == "outer" for stack in inner), inner)
        self.assertEqual(sum(values[0] for stack, values in samples if stack[0] == "inner"), 20)
        notes = subprocess.check_output(["readelf", "-n", self.program], text=True)
        self.assertIn((self.program, re.search(r"Build ID: ([0-9a-f]+)", notes)[1]), mappings)

    def test_pprof_reads_it(self):
        go = harness.need("go")
        self.record(50)
        profile = self.page("profile", "--format=pprof")
        env = {**os.environ, "HOME": self.path("home"), "PPROF_TMPDIR": self.path("home")}
        seen = harness.run([go, "tool", "pprof", "-top", "-sample_index=hits", profile], env=env)
        self.assertEqual(seen.returncode, 0, seen.stderr)
        lines = seen.stdout.decode()
        self.assertRegex(lines, r"\n\s+200 +\S+ +\S+ +200 +\S+ +inner\n")
        self.assertRegex(lines, r"\n\s+100 +\S+ +\S+ +300 +\S+ +outer\n")

    def test_it_is_no_text(self):
        words = ["--format=pprof", "-p", f"{self.program}:outer", "--", self.program, "1"]
        seen = harness.run([harness.tool(), *words])
        self.assertEqual(seen.returncode, 125)
        self.assertIn(b"--format=pprof: it is a file, and standard error has other lines", seen.stderr)


class FlameGraph(Pictures):
    def test_it_is_well_formed_and_counts(self):
        self.record(5, "--trigger=stacktrace")
        tree = xml.parse(self.page("flame.svg", "--format=flamegraph")).getroot()
        frames = {}
        for group in tree.iter("{http://www.w3.org/2000/svg}g"):
            name, hits = re.fullmatch(r"(.*): (\d+) hits?, [\d.]+%", group[0].text).groups()
            frames[name] = frames.get(name, 0) + int(hits)
        text = self.counts_of_text()
        self.assertEqual(frames["all"], sum(text.values()))
        self.assertEqual(frames["level"], 10)
        self.assertEqual(frames["inner"], text["inner"])  # the stack of a return begins with the caller

    def test_chromium_zooms_and_searches(self):
        browser = Browser(self)
        self.record(5, "--trigger=stacktrace")
        browser.open(self.page("flame.svg", "--format=flamegraph"))
        shown = "[...document.querySelectorAll('g.frame')].filter((g) => g.style.display != 'none').length"
        every = browser.run(f"return {shown}")
        frame = "[...document.querySelectorAll('g.frame')].find((g) => g.textContent.startsWith('level:'))"
        browser.run(f"{frame}.dispatchEvent(new MouseEvent('click'))")
        self.assertLess(browser.run(f"return {shown}"), every)
        width = browser.run(f"return Number({frame}.querySelector('rect').getAttribute('width'))")
        self.assertAlmostEqual(width, 1200, delta=1)
        browser.run("document.querySelector('.reset').dispatchEvent(new MouseEvent('click'))")
        self.assertEqual(browser.run(f"return {shown}"), every)
        browser.run("window.prompt = () => 'level'; document.querySelector('.search').dispatchEvent(new MouseEvent('click'))")
        self.assertRegex(browser.run("return document.querySelector('.found').textContent"), r"'level': 10 hits")
        self.assertEqual(browser.errors(), [])


class Html(Pictures):
    READY = "while (!page.ready && !page.error) await new Promise((r) => setTimeout(r, 5));"

    def shown(self, *options):
        browser = Browser(self)
        browser.open(self.page("page.html", "--format=html", *options))
        self.assertIsNone(browser.run(self.READY + "return page.error"))
        return browser

    def test_counts_are_those_of_the_text(self):
        self.record(300)
        text = self.counts_of_text()
        browser = self.shown()
        self.assertEqual(browser.run("return Object.fromEntries(page.about.events.map((one) => [one.event, one.hits]))"), dict(text))
        self.assertEqual(browser.run("return page.line.inView()"), sum(text.values()))
        for event, hits in text.items():
            self.assertEqual(browser.run(f"return page.list.filter({json.dumps(event)})"),
                             hits + sum(count for other, count in text.items() if other != event and event in other))
        self.assertEqual(browser.run("return page.list.filter('got=303')"), len(re.findall("got=303", self.replay().decode())))
        cells = browser.run("return [...document.querySelectorAll('#functions tr')].map((tr) => [...tr.cells].map((td) => td.textContent))")
        self.assertEqual({row[1]: int(row[2]) for row in cells[1:]}, dict(text))
        self.assertEqual({row[1]: row[3] for row in cells[1:]}, {"outer": "600", "inner": "1200", "outer_back": "0", "inner_back": "0",
                                                                 "level": "0"})
        self.assertEqual(browser.errors(), [])

    def test_it_zooms_and_draws(self):
        self.record(300)
        browser = self.shown()
        pixels = ("const c = element('line'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0;"
                  "for (let i = 3; i < d.length; i += 4) if (d[i]) ++n; return n")
        self.assertGreater(browser.run(pixels), 1000)
        halves = browser.run("const l = page.line; l.view(0, l.last / 2); const a = l.inView(); l.view(l.last / 2 + 1, l.last); return [a, l.inView()]")
        self.assertLess(abs(sum(halves) - sum(self.counts_of_text().values())), 5)
        self.assertTrue(all(halves))
        near = browser.run("const t = page.rows.times[7]; page.line.view(t - 100, t + 100); return page.line.inView()")
        self.assertGreaterEqual(near, 1)
        self.assertGreater(browser.run(pixels), 100)
        rows = browser.run("page.list.filter(''); const b = element('rows'); b.scrollTop = b.scrollHeight; await new Promise((r) => setTimeout(r, 50));"
                           "return element('visible').lastChild.textContent")
        self.assertRegex(rows, r"level +d=4\.5$")

    def test_no_text_of_the_program_is_markup(self):
        self.record(2, "--trigger=stacktrace")
        browser = self.shown()
        text = browser.run("page.list.filter('onerror'); return element('visible').textContent")
        self.assertIn("</script><img src=x onerror", text)
        self.assertEqual(browser.run("return [document.title, document.images.length, document.scripts.length]"), ["uprobe-run", 0, 1])
        with open(self.path("page.html"), encoding="utf-8") as file:
            source = file.read()
        self.assertNotIn("onerror", source)
        self.assertNotRegex(source, r"(?:src|href)=|https?://(?!www\.w3\.org/2000/svg)")
        self.assertIn("default-src 'none'", source)

    def test_counters(self):
        self.record(2)
        browser = self.shown("--counter=level:d", "--counter=outer:n")
        self.assertEqual(browser.run("return page.rows.counters.map((one) => [one.name, one.values.length])"), [["level:d", 10], ["outer:n", 4]])
        self.assertEqual(browser.run("return page.rows.counters[0].values"), [i / 2 for i in range(10)])
        objects = json.loads(self.replay("--format=chrome", "--counter=level:d"))
        self.assertEqual([one["args"]["d"] for one in objects if one["ph"] == "C"], [i / 2 for i in range(10)])
        for words, answer in ((["--counter=level:x"], "the event has no field 'x' that is a number"), (["--counter=outer:name"], "no field 'name'"),
                              (["--counter=other:n"], "there is no event 'other'"), (["--counter=n"], "'n' is not EVENT:FIELD")):
            seen = harness.run([harness.tool(), f"--replay={self.recording}", "--format=html", *words])
            self.assertEqual(seen.returncode, 125, words)
            self.assertIn(answer, seen.stderr.decode())
        live = harness.run([harness.tool(), "--format=html", "-o", self.path("x"), "--counter=e:x", "-p", f"p:e {self.program}:outer", "true"])
        self.assertEqual((live.returncode, live.stderr.count(b"\n")), (125, 2), live.stderr)

    def test_a_million_hits(self):
        if not harness.LONG:
            self.skipTest("a long test: scripts/test --full has it")
        self.record(1000000 // HITS_OF_A_TURN)
        browser = self.shown()
        self.assertLess(os.path.getsize(self.path("page.html")), 20 << 20)
        text = self.counts_of_text()
        self.assertEqual(browser.run("return [page.about.hits, page.about.rows, page.line.inView()]"), 3 * [sum(text.values())])


class Build(harness.TestCase):
    """make -j2: processes that begin, execute others and end, each with its own calls."""
    def setUp(self):
        super().setUp()
        make, cc = harness.need("make"), harness.need("cc")
        for name in "abc":
            self.write(f"{name}.c", f"int {name}(void) {{ return 1; }}\n")
        self.write("main.c", "int a(void), b(void), c(void); int main(void) { return a() + b() + c() != 3; }\n")
        self.write("Makefile", f"prog: main.o a.o b.o c.o\n\t{cc} -o $@ $^\n%.o: %.c\n\t@echo \"$$(basename $<)\"; {cc} -c $<\n")
        self.recording = self.path("recording")
        words = harness.tracer("-q", "-b", "16M", f"--record={self.recording}")
        for definition in ("p:open libc:open64 path=$arg1:string", "r:open_back libc:open64 fd=$retval:s32", "p:exec libc:execve",
                           "r:exec_back libc:execve", "p:fork libc:fork", "r:fork_back libc:fork pid=$retval:s32"):
            words += ["-p", definition]
        environment = {**os.environ, "PATH": "/usr/bin:/bin", "TMPDIR": self.path("tmp")}
        os.mkdir(self.path("tmp"))
        seen = harness.run([*words, "--", make, "-j2"], cwd=self.path(""), env=environment)
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.text = self.replay().decode()
        self.counts = collections.Counter(harness.EVENT.findall(self.text))
        self.assertGreaterEqual(self.counts["open"], 4)

    replay, page = Pictures.replay, Pictures.page

    def test_chrome_has_a_slice_for_each_call_that_returned(self):
        objects = json.loads(self.replay("--format=chrome"))
        slices = collections.Counter(one["name"] for one in objects if one["ph"] == "X")
        instants = collections.Counter(one["name"] for one in objects if one["ph"] == "i")
        self.assertEqual(slices["open"], self.counts["open_back"])
        self.assertEqual(slices["exec"], self.counts["exec_back"])
        self.assertEqual(instants["exec"], self.counts["exec"] - self.counts["exec_back"], "those that succeeded")
        self.assertEqual(slices["fork"] + instants["fork_back"], self.counts["fork_back"], "each returns twice")
        self.assertEqual(slices["fork"], self.counts["fork"])

    def test_the_tree(self):
        graph = self.replay("--graph").decode()
        self.assertEqual(graph.count("/* execve: no return was recorded */"), self.counts["exec"] - self.counts["exec_back"])
        self.assertNotIn("/* open64: no", graph)
        self.assertEqual(graph.count("fork() = 0 /* no entry was recorded */"), self.counts["fork"])

    def test_the_page_and_the_flame_graph_count_all(self):
        tree = xml.parse(self.page("flame.svg", "--format=flamegraph")).getroot()
        titles = [title.text for title in tree.iter("{http://www.w3.org/2000/svg}title")]
        self.assertRegex(titles[0], rf"^all: {sum(self.counts.values())} hits")
        browser = Browser(self)
        browser.open(self.page("page.html", "--format=html"))
        self.assertIsNone(browser.run(Html.READY + "return page.error"))
        hits = browser.run("return Object.fromEntries(page.about.events.filter((one) => one.hits).map((one) => [one.event, one.hits]))")
        self.assertEqual(hits, dict(self.counts))
        self.assertEqual(browser.run("return page.line.inView()"), sum(self.counts.values()))


if __name__ == "__main__":
    harness.main()
