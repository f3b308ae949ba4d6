# SPDX-License-Identifier: MIT
"""Long strings of real programs: cut where they are too long and marked, never a fault, and no record is lost."""
import os
import re
import unittest

import harness
from elf_reader import Elf

PYTHON = "/usr/bin/python3"
SET = "import os, sys\nfor word in sys.argv[1:]:\n    name, value = word.split('=')\n    os.environ[eval(name)] = eval(value)\n"


def cut(text, limit):
    return f'"{text}"' if len(text) <= limit else f'"{text[:limit]}"...'


class Strings(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.tool()

    def trace(self, definition, command, *options, stdin=b""):
        """The arguments of the hits; none of them is lost."""
        seen = harness.run_tool([definition], command, options, stdin=stdin)
        self.assertNotIn(b"lost", seen.stderr)
        hits, = re.findall(rb"^uprobe-run: \S+ \S+: ([\d,]+) hit", seen.stderr, re.M)
        self.assertEqual(int(hits.replace(b",", b"")), len(seen.hits) + self.filtered(seen.stderr))
        return [hit.arguments for hit in seen.hits]

    @staticmethod
    def filtered(stderr):
        return sum(int(count) for count in re.findall(rb"(\d+) filtered", stderr))


class Programs(Strings):
    def test_a_statement_of_ten_thousand_bytes(self):
        harness.need("sqlite3")
        library = "/lib/x86_64-linux-gnu/libsqlite3.so.0"
        if not os.path.exists(library):
            self.skipTest("sqlite3 has no library of its own here")
        statement = "SELECT '" + "x" * 9990 + "';"
        for options, limit in (((), 4096), (("-s", "65535"), 65535), (("-s16",), 16), (("--string-limit=9999",), 9999)):
            with self.subTest(options=options):
                seen = self.trace(f"p:sql {library}:sqlite3_prepare_v2 sql=$arg2:string", ["sqlite3", ":memory:"], *options,
                                  stdin=statement.encode() + b"\n")
                self.assertIn("sql=" + cut(statement, limit), [text.replace("\\n", "") for text in seen])

    def test_a_path_of_five_thousand_bytes(self):
        if not os.path.exists(PYTHON):
            self.skipTest("no python3")
        path = "/" + "p" * 4999
        program = "import sys\ntry:\n    open(sys.argv[1])\nexcept OSError as error:\n    print(error.errno)"
        definition = f"p:open {harness.libc_of(PYTHON)}:open64 file=$arg1:string"
        for options, limit in (((), 4096), (("-s", "5000"), 5000), (("-s", "4999"), 4999), (("-s", "1"), 1)):
            with self.subTest(options=options):
                seen = self.trace(definition, [PYTHON, "-c", program, path], *options)
                self.assertIn("file=" + cut(path, limit), seen)

    def test_the_kernels_limits(self):
        """With --strict they stay; the same hits without it are cut."""
        if not os.path.exists(PYTHON):
            self.skipTest("no python3")
        libc = harness.libc_of(PYTHON)
        definition = f"p:g/set {libc}:{Elf(libc).offset_of('setenv'):#x} value=+0(%si):string"
        command = [PYTHON, "-c", SET, "'a'='b'*4000", "'a'='b'*4096"]
        seen = harness.run_tool([definition], command, ["--strict"])
        self.assertEqual([hit.arguments for hit in seen.hits][-2:], [f'value="{"b" * 4000}"', "value=(fault)"])
        self.assertEqual(self.trace(definition, command)[-2:], [f'value="{"b" * 4000}"', f'value="{"b" * 4096}"'])


@unittest.skipUnless(os.path.exists(PYTHON), "no python3")
class Several(Strings):
    """setenv(name, value)"""

    def setUp(self):
        super().setUp()
        self.definition = f"p:set {harness.libc_of(PYTHON)}:setenv name=$arg1:string value=$arg2:string"

    def set(self, *words, options=()):
        """The hits of these words, the last ones."""
        return self.trace(self.definition, [PYTHON, "-c", SET, *words], *options)[-len(words):]

    def test_two_in_one_record(self):
        seen = self.set("'n'*40000='v'*30000", "'m'*5='w'*65535", "'l'='u'*65536", options=["-s65535"])
        self.assertEqual(seen, [f'name="{"n" * 40000}" value="{"v" * 30000}"', f'name="mmmmm" value="{"w" * 65535}"',
                                f'name="l" value={cut("u" * 65536, 65535)}'])

    def test_the_second_is_cut_to_what_the_first_leaves(self):
        seen, = self.set("'n'*70000='v'*100", options=["-s65535"])
        name, value = re.fullmatch(r'name="(n+)"\.\.\. value="(v+)"(?:\.\.\.)?', seen).groups()
        self.assertGreater(len(name), 65000)
        self.assertLess(len(name), 65535)
        self.assertEqual(len(value), 100, "it begins where the first 64 KiB end")

    def test_small_rings(self):
        for size in (3000, 10, 5000, 20000, 4000):
            seen, = self.set(f"'n'*{size}='v'*{size}", options=["-b8K"])
            name, value = re.fullmatch(r'name="(n+)"(?:\.\.\.)? value="(v+)"(?:\.\.\.)?', seen).groups()
            self.assertLess(len(name) + len(value), 4072)
            self.assertEqual(len(name), size) if size <= 3000 else self.assertGreater(len(name), 3000)

    def test_filters_see_more_than_is_shown(self):
        words = ["'n'='v'*1000+'end'", "'n'='v'*1000", "'n'='x'*5000+'end'"]
        for text, shown in (('value ~ "*end"', ["v"]), ('value ~ "v*"', ["v", "v"]), ('value ~ "x*"', ["x"]),
                            ('value ~ "!*end" && name == "n"', ["v", "x"])):
            with self.subTest(filter=text):
                seen = self.trace(f"{self.definition} if {text}", [PYTHON, "-c", SET, *words], "-s16")
                self.assertEqual([line for line in seen if line.startswith('name="n" ')],
                                 [f'name="n" value="{letter * 16}"...' for letter in shown])

    def test_keys_of_histograms(self):
        tables = self.path("tables")
        harness.run([*harness.tracer("-s8", "-o", self.path("trace"), "--hist-file", tables, "-p", self.definition,
                                     "--trigger=hist:keys=value"), "--", PYTHON, "-c", SET, "'n'='k'*5000"])
        with open(tables, encoding="latin-1") as file:
            self.assertRegex(file.read(), r"value: k{255} *\} hitcount: +1\n")

    def test_by_ld_preload(self):
        output = self.path("trace")
        env = harness.preloaded(UPROBE_PROBES=self.definition, UPROBE_OUTPUT=output, UPROBE_STRING_LIMIT="7")
        harness.run([PYTHON, "-c", SET, "'name'='v'*9"], env=env)
        with open(output, encoding="latin-1") as file:
            self.assertIn('name="name" value="vvvvvvv"...\n', file.read())


class Refusals(Strings):
    def refusal(self, *options):
        done = harness.run([*harness.tracer(*options, "-p", "p:f /bin/true:main"), "--", "/bin/true"])
        self.assertEqual(done.returncode, 125)
        return done.stderr.decode()

    def test_limits(self):
        for bad in ("0", "65536", "64K", "-1", "many"):
            self.assertIn("from 1 to 65535", self.refusal(f"-s{bad}"))
        self.assertIn("-s does not go with --strict", self.refusal("-s9", "--strict"))

    def test_a_ring_that_is_too_small(self):
        done = harness.run_tool([f"p:f {harness.libc_of('/bin/true')}:malloc"], ["/bin/true"], ["-s65535", "-b64K"])
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"strings of 65535 bytes need larger rings than 64K", done.stderr)
        self.assertIn(b"a buffer size of 256K is enough", done.stderr)
        done = harness.run_tool([f"p:f {harness.libc_of('/bin/true')}:malloc"], ["/bin/true"], ["-s65535", "-b256K"])
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    harness.main()
