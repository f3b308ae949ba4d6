# SPDX-License-Identifier: MIT
"""--graph: calls as trees. The same hits as in the text, nested as the program nests its calls."""
import re

import harness

SOURCE = r"""
#include <csetjmp>
#include <thread>
#include <unistd.h>
#define KEPT extern "C" __attribute__((noinline, used))
static jmp_buf back;
KEPT int leaf(int n) { asm volatile("" : "+r"(n)); return n; }
KEPT int thrower(int n) { leaf(n); if (n > 0) throw n; asm volatile("" : "+r"(n)); return n + 1; }
KEPT int jumper(int n) { leaf(n); longjmp(back, 1); return n; }
KEPT int down(int n) { int got = n == 0 ? 100 : down(n - 1); asm volatile("" : "+r"(got)); return got + 1; }
KEPT int slow(int n) { leaf(n); usleep(20000); asm volatile("" : "+r"(n)); return n; }
KEPT int top(int n) {
  int got = down(n);
  try { thrower(3); } catch (int) { asm volatile("" : "+r"(got)); }
  if (setjmp(back) == 0) jumper(4);
  asm volatile("" : "+r"(got));
  return got;
}
int main() {
  int got = top(2);
  std::thread one([] { top(1); });
  one.join();
  slow(5);
  leaf(6);
  return got != 103;
}
"""
LINE = re.compile(r" *(?P<task>\S+)-(?P<tid>\d+) +(?P<time>\d+\.\d{6}) (?: {13}| *(?P<us>\d+\.\d{3}) us)  (?P<indent> *)(?P<text>\S.*)")
PAIRED = ("thrower", "jumper", "down", "slow", "top")


class Graph(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.tool()
        self.program = harness.compiled([harness.need("c++"), "-O1", "-g", "-fno-optimize-sibling-calls", self.write("calls.cpp", SOURCE),
                                         "-lpthread"], self.path("calls"))
        self.words = ["-p", f"p:leaf {self.program}:leaf n=%di:s32"]
        for name in PAIRED:
            self.words += ["-p", f"p:{name} {self.program}:{name} n=%di:s32", "-p", f"r:{name}_back {self.program}:{name} ret=$retval:s32"]

    def trace(self, *options):
        seen = harness.run([*harness.tracer("-q", "-o", self.path("trace"), *options), *self.words, "--", self.program])
        self.assertEqual((seen.returncode, seen.stderr), (0, b""))
        with open(self.path("trace"), "rb") as file:
            return file.read()

    def lines(self, text):
        found = [LINE.fullmatch(line) for line in text.splitlines()]
        self.assertNotIn(None, found, text)
        return found

    def threads(self, text):
        """The trees, "indent + text" without latencies, in the order of the threads."""
        trees = {}
        for line in self.lines(text):
            trees.setdefault(line["tid"], []).append(line["indent"] + line["text"])
        return list(trees.values())

    def test_the_tree(self):
        main, thread = self.threads(self.trace("--graph").decode())
        self.assertEqual(main, ["top(n=2) {", "  down(n=2) {", "    down(n=1) {", "      down(n=0) = 101", "    } = 102 /* down */",
                                "  } = 103 /* down */", "  thrower(n=3) {", "    leaf(n=3)", "    jumper(n=4) {", "      leaf(n=4)",
                                "    } /* jumper: no return was recorded */", "  } /* thrower: no return was recorded */",
                                "} = 103 /* top */", "slow(n=5) {", "  leaf(n=5)", "} = 5 /* slow */", "leaf(n=6)"])
        self.assertEqual(thread[:4], ["top(n=1) {", "  down(n=1) {", "    down(n=0) = 101", "  } = 102 /* down */"])

    def test_execve_leaves_the_calls_of_the_program_before(self):
        source = """
#include <unistd.h>
__attribute__((noinline, used)) int work(int n) { __asm__ volatile("" : "+r"(n)); return n; }
__attribute__((noinline, used)) int launch(char *me) { execl(me, me, "x", (char *)0); __asm__ volatile("" : : : "memory"); return 1; }
int main(int count, char **words) { return count > 1 ? work(1) - work(2) + 1 : launch(words[0]); }
"""
        self.program = harness.compiled([harness.need("cc"), "-O1", self.write("again.c", source)], self.path("again"))
        self.words = [word for name in ("launch", "work") for word in ("-p", f"p:{name} {self.program}:{name}", "-p", f"r:{name}_back {self.program}:{name}")]
        tree = ["launch() {", "} /* launch: no return was recorded */", "work()", "work()"]
        self.assertEqual(self.threads(self.trace("--graph").decode()), [tree])
        harness.run([*harness.tracer("-q", f"--record={self.path('recording')}"), *self.words, "--", self.program])
        seen = harness.run([harness.tool(), "--replay=" + self.path("recording"), "--graph"])
        self.assertEqual(self.threads(seen.stdout.decode()), [tree])

    def test_latencies_are_those_of_the_text(self):
        seen = harness.run([*harness.tracer(f"--record={self.path('recording')}"), *self.words, "--", self.program])
        self.assertEqual(seen.returncode, 0)
        replay = [harness.tool(), f"--replay={self.path('recording')}"]
        text = harness.parse_trace(harness.run(replay).stdout.decode())
        graph = self.lines(harness.run([*replay, "--style=graph", "--no-header"]).stdout.decode())
        times = {hit.event: hit.time for hit in text}
        slow = next(line for line in graph if line["text"].endswith("/* slow */"))
        self.assertAlmostEqual(float(slow["us"]), (times["slow_back"] - times["slow"]) * 1e6, delta=1.001)
        entries = [line for line in graph if re.match(r"\w+\(", line["text"])]
        self.assertEqual(len(entries), sum(1 for hit in text if not hit.event.endswith("_back")))
        returned = [line for line in graph if line["us"]]
        self.assertEqual(len(returned), sum(1 for hit in text if hit.event.endswith("_back")))
        head = harness.run([*replay, "--graph"]).stdout.decode().splitlines()[0]
        self.assertEqual(head.split(), ["#", "TASK-TID", "TIMESTAMP", "LATENCY", "CALLS"])

    def test_only_slow_calls(self):
        trees = self.threads(self.trace("--graph", "--min-latency=15ms").decode())
        self.assertIn(["slow(n=5) {", "  leaf(n=5)", "} = 5 /* slow */"], [tree[-3:] for tree in trees])
        self.assertEqual(self.trace("--graph", "--min-latency=1h"), b"")

    def test_entries_moved_after_the_prologue_are_paired(self):
        self.words = ["-p", f"p:top {self.program}:top n=n", "-p", f"r:back {self.program}:top"]
        main, _ = self.threads(self.trace("--graph").decode())
        self.assertEqual(main, ["top(n=2)"])

    def test_execve_leaves_its_calls(self):
        main = self.write("main.c", "#include <unistd.h>\n#include <stdlib.h>\n"
                          "__attribute__((noinline)) void next(char *p, int n) { if (n) execl(p, p, (char *)0); }\n"
                          "int main(int argc, char **v) { next(v[0], argc - 1); next(v[0], 0); }\n")
        program = harness.compiled([harness.need("cc"), "-O1", main], self.path("main"))
        words = ["-p", f"p:next {program}:next", "-p", f"r:back {program}:next", "-p", "p:exec libc:execve", "-p", "r:exec_back libc:execve"]
        seen = harness.run([*harness.tracer("-q", "--graph", "-o", self.path("trace")), *words, "--", program, "x"])
        self.assertEqual((seen.returncode, seen.stderr), (0, b""))
        with open(self.path("trace"), encoding="utf-8") as file:
            [tree] = self.threads(file.read())
        self.assertEqual(tree, ["next() {", "  execve() {", "  } /* execve: no return was recorded */",
                                "} /* next: no return was recorded */", "next()", "next()"])

    def test_words_that_do_not_go_together(self):
        for words, answer in ((["--min-latency=1ms"], "--min-latency chooses among returns"),
                              (["--graph", "--format=json"], "a graph is text, and not json"),
                              (["--format=csv", "--style=graph"], "a graph is text, and not csv"),
                              (["--graph", "--min-latency=x"], "'x' is not a time")):
            seen = harness.run([harness.tool(), *words, "-p", "malloc", "true"])
            self.assertEqual(seen.returncode, 125, words)
            self.assertIn(answer, seen.stderr.decode())


if __name__ == "__main__":
    harness.main()
