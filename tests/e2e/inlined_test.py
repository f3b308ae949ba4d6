# SPDX-License-Identifier: MIT
"""Inlined copies: the hits of a bare name are the calls that the program tells, with their arguments in their order, where all copies
have a known start; and never more than those."""
import collections
import os
import re
import shutil
import subprocess

import harness

FUNCTIONS = ("scale", "total", "early", "brief", "both", "choose", "shadow")


def clang():
    return next(filter(None, map(shutil.which, ("clang", "clang-14"))), None)


class Inlined(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.tool()
        self.source = os.path.join(harness.Options.source, "tests/e2e/fixtures/inlined.c")
        self.program = self.path("inlined")

    def build(self, compiler, *flags, source=None):
        subprocess.run([compiler, "-g", "-w", *flags, "-o", self.program, source or self.source], check=True, cwd=self.folder)

    def calls(self):
        """function -> the arguments of its calls, as the program tells them"""
        told = subprocess.run([self.program], stdout=subprocess.PIPE, check=True, timeout=harness.TIMEOUT).stdout.decode()
        calls = collections.defaultdict(list)
        for function, a, b in re.findall(r"(?m)^(\w+) (\S+) (\S+)$", told):
            calls[function].append((a, b))
        return calls

    def trace(self, *words):
        """(hits of each event as lists of their arguments, the tool's lines)"""
        done = harness.run([*harness.tracer("-b", "4M", "-o", self.path("trace"), *words), "--", self.program])
        hits = collections.defaultdict(list)
        if done.returncode == 0:
            with open(self.path("trace"), encoding="latin-1") as file:
                for event, rest in re.findall(r": (\w+): \(0x\w+(?: <- 0x\w+)?\)(.*)", file.read()):
                    hits[event].append(tuple(re.findall(r"=(\S+)", rest)))
        return hits, done.stderr.decode()

    def check(self, least):
        """The number of functions of which all is seen."""
        calls, whole = self.calls(), 0
        for function in FUNCTIONS:
            for fields in ("", " a b"):
                hits, said = self.trace("-p", function + fields)
                with self.subTest(function=function, fields=fields, said=said):
                    is_whole = not any(words in said for words in ("left out", "without its", "-p: "))
                    seen = hits[function]
                    self.assertLessEqual(len(seen), len(calls[function]))
                    if fields:
                        left = list(calls[function])
                        for arguments in seen:  # in their order
                            self.assertIn(arguments, left)
                            left = left[left.index(arguments) + 1:]
                    if is_whole:
                        self.assertEqual(len(seen), len(calls[function]))
                        whole += 1
        self.assertGreaterEqual(whole, least)

    def test_gcc(self):
        for flags, least in (("-O1", 6), ("-O2", 4), ("-O3", 2), ("-Os", 4), ("-O2 -gdwarf-4", 4), ("-O2 -flto", 1),
                             ("-O2 -gsplit-dwarf", 4)):
            with self.subTest(flags=flags):
                self.build(harness.need("gcc"), *flags.split())
                self.check(least)

    def test_gcc_of_cxx(self):
        self.build(harness.need("g++"), "-O2", "-x", "c++")
        self.check(5)

    def test_clang(self):
        if clang() is None:
            self.skipTest("clang is not installed")
        for flags in ("-O1", "-O2", "-O3"):
            with self.subTest(flags=flags):
                self.build(clang(), flags)
                self.check(1)

    def test_a_function_with_code_of_its_own(self):
        self.build(harness.need("gcc"), "-O2")
        calls = self.calls()
        hits, said = self.trace("-p", "both a b")
        self.assertEqual(hits["both"], calls["both"])
        self.assertIn("'both' is probed with its 1 inlined copy\n", said)
        listed = harness.run([harness.tool(), "--list-events", "-p", "both", self.program]).stdout.decode()
        self.assertEqual(len(re.findall(r"(?m)^p:uprobes/both ", listed)), 2, listed)
        self.assertIn("uprobes/both", listed)
        alone, said = self.trace("-p", f"p:both {self.program}:both")
        self.assertEqual((len(alone["both"]), "inlined cop" in said), (4, False))

    def test_what_copies_do_not_have(self):
        self.build(harness.need("gcc"), "-O2")
        for words, lack in ((("-r", "both"), "only a function by its symbol has a return that can be probed"),
                            (("-p", "both $arg1"), "their arguments are in no fixed registers"),
                            (("-p", "both(a)"), "their arguments are in no fixed registers")):
            with self.subTest(words=words):
                hits, said = self.trace(*words)
                self.assertIn("'both': its 1 inlined copy is not seen: " + lack, said)
                self.assertEqual(sum(map(len, hits.values())), 4)
                said = self.trace(words[0], words[1].replace("both", "scale"))[1]
                self.assertRegex(said, r"-p: 'scale' has no code of its own, and its \d+ inlined copies cannot be probed so: " + lack
                                 if words[0] == "-p" else "'scale' has no code of its own")

    def test_a_definition_means_the_symbol(self):
        self.build(harness.need("gcc"), "-O2")
        for definition in (f"p:e {self.program}:total", "p:e total"):
            with self.subTest(definition=definition):
                said = self.trace("-p", definition)[1]
                self.assertIn("it is inlined wherever it is called: its name alone, -p total, means the copies\n", said)

    def test_variables_and_lines(self):
        self.build(harness.need("gcc"), "-O1")
        listed = harness.run([harness.tool(), "--vars=total", self.program]).stdout.decode()
        self.assertRegex(listed, r"\A\S+:total a b\n# long int a\n# long int b\n# long int sum: ")
        taken, _ = self.trace("-p", listed.splitlines()[0])
        self.assertEqual(taken["total"], self.calls()["total"])
        lines = harness.run([harness.tool(), "--lines=total", self.program]).stdout.decode()
        self.assertRegex(lines, r"p:total_\d+ \S+:inlined.c:\d+ +# tell\(\"total\", a, b\);\n")
        # the variables of the named function, not those of another one that is inlined at the same place or around it
        hits, _ = self.trace("-p", "shadow $params")
        self.assertEqual(hits["shadow"], self.calls()["shadow"])
        said = self.trace("-p", "scale inner")[1]
        self.assertIn("no variable 'inner' here", said)
        self.assertRegex(said, "there are: (a, b|b, a)\n")

    def test_one_event(self):
        self.build(harness.need("gcc"), "-O1")
        hits, _ = self.trace("-p", "total a b if b == 2")
        self.assertEqual(hits["total"], [call for call in self.calls()["total"] if call[1] == "2"])
        self.assertEqual(list(hits), ["total"])

    def test_without_optimisation(self):
        """A copy stores its arguments after it has begun: none is shown before."""
        self.build(harness.need("gcc"), "-O0")
        calls = self.calls()
        hits, said = self.trace("-p", "scale")
        self.assertLessEqual(len(hits["scale"]), len(calls["scale"]))
        hits, said = self.trace("-p", "scale a")
        self.assertRegex(said, "not in place yet where the copy begins|no known start")

    def test_functions_of_one_file(self):
        """f@file.c, as perf and SystemTap write it: static functions of one name."""
        units = [self.write(unit + ".c", f"""
static __attribute__((noinline)) int local(int x) {{ __asm__ volatile("" : "+r"(x)); return x + {number}; }}
int {unit}(int x) {{ return local(x); }}
""") for number, unit in enumerate(("one", "two"))]
        main = self.write("main.c", "int one(int), two(int);\nint main(void) { return one(1) + two(2) == 0; }\n")
        subprocess.run([harness.need("gcc"), "-O1", "-g", "-o", self.program, *units, main], check=True)
        self.assertEqual(self.trace("-p", "local@two.c x")[0]["local"], [("2",)])
        self.assertEqual(self.trace("-p", f'process("{self.program}").function("local@two.c")')[0]["local"], [()])
        self.assertEqual(set(self.trace("-p", f"{self.program}:*@two.c")[0]), {"local", "two"})
        self.assertIn("no function 'main' of two.c", self.trace("-p", "main@two.c")[1])

    def test_several_files(self):
        """Functions of one name in several units, which are inlined there."""
        units = []
        for unit, factor in (("one", 3), ("two", 5)):
            units.append(self.write(unit + ".c", f"""
int puts(const char *);
static inline int weigh(int n)
{{
  puts("{unit}");
  return n * {factor};
}}
int {unit}(int n)
{{
  return weigh(n) + 1;
}}
"""))
        main = self.write("main.c", "int one(int), two(int);\nint main(int n, char **w) { return one(n) + two(n + 1) == 0; }\n")
        subprocess.run([harness.need("gcc"), "-O2", "-g", "-o", self.program, *units, main], check=True)
        hits, said = self.trace("-p", "weigh n")
        self.assertEqual(hits["weigh"], [("1",), ("2",)])
        self.assertIn("'weigh' has no code of its own: its 2 inlined copies are probed", said)
        self.assertEqual(self.trace("-k", "-p", "weigh n")[0]["weigh"], [("1",), ("2",)], "one trigger for all places")
        subprocess.run([harness.need("strip"), "-g", self.program], check=True)
        said = self.trace("-p", "weigh")[1]
        self.assertIn("no function 'weigh'", said)


if __name__ == "__main__":
    harness.main()
