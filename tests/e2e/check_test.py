# SPDX-License-Identifier: MIT
"""--check against a kernel's answers to 807 writes, row by row, and the forms of its output."""
import json
import subprocess
from dataclasses import asdict

import corpus
import harness

GROUP = "ucorpus"


def check(text, *options):
    """--check of a text as standard input: exit code, standard output, standard error."""
    done = subprocess.run([harness.tool(), "--check", *options, "-i", "-"], input=text.encode("latin-1"),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=harness.TIMEOUT, check=False)
    return done.returncode, done.stdout.decode("latin-1"), done.stderr.decode("latin-1")


def answer(text, *options):
    """--check --json's answer; its exit code says the same as `accepted`."""
    code, out, err = check(text, "--json", *options)
    assert err == "", err
    reply = json.loads(out)
    assert code == (0 if reply["accepted"] else 125), (code, out)
    return reply


class Recorded(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.files = corpus.Files(self.folder, GROUP)

    def test_strict_answers_as_the_kernel_did(self):
        rows = corpus.read_rows()
        self.assertEqual(len(rows), 807)
        different = []
        for row in rows:
            reply = answer(self.files.expand(row.definition), "--strict")
            expected = asdict(self.files.expected(row))
            if not row.has_formats():
                expected["formats"] = reply["formats"]
            if reply != expected:
                different.append((row.definition, reply, expected))
        self.assertEqual(different, [])

    def test_extensions_never_change_what_the_kernel_accepts(self):
        """The same listing, or a refusal."""
        for row in corpus.read_rows():
            if not row.answer.accepted:
                continue
            reply = answer(self.files.expand(row.definition))
            if reply["accepted"]:
                self.assertEqual(reply["listing"], self.files.expected(row).listing, row.definition)


class Words(harness.TestCase):
    def answer_to(self, *words):
        done = subprocess.run([harness.tool(), "--check", "--json", "--strict", *words], stdout=subprocess.PIPE,
                              timeout=harness.TIMEOUT, check=False)
        return json.loads(done.stdout)

    def test_definitions_on_the_command_line(self):
        """Each definition is a write of its own to the same events; the first mistake ends it."""
        reply = self.answer_to("-p", f"p:g/a {harness.tool()}:1\np:g/b {harness.tool()}:2", "-p", "", "-p", "-:g/a",
                              "-p", "1234", "-p", f"p:g/c {harness.tool()}:3")
        self.assertEqual((reply["accepted"], reply["errno"], reply["error"], reply["caret"]), (False, "EINVAL", None, None))
        self.assertEqual(reply["listing"], [f"p:g/b {harness.tool()}:0x0000000000000002"])

    def test_an_empty_write_defines_nothing(self):
        empty = {"accepted": True, "errno": None, "error": None, "caret": None, "listing": [], "formats": []}
        self.assertEqual(answer(""), empty)
        self.assertEqual(answer("", "--strict"), empty)
        self.assertEqual(self.answer_to("-p", ""), empty)

    def test_a_mistake_is_reported_with_its_line(self):
        code, out, err = check(f"p:g/a {harness.tool()}:1\n\np:g/b   {harness.tool()}:1 %dii # no\n", "--strict")
        definition = f"p:g/b {harness.tool()}:1 %dii"
        self.assertEqual((code, out), (125, ""))
        self.assertEqual(err.splitlines()[0], "uprobe-run: standard input:3: Invalid register name")
        self.assertEqual(err.splitlines()[2], "  " + " " * definition.index("%") + "^")

    def test_nothing_is_said_where_the_kernel_says_nothing(self):
        for text in ("p:g/a", "junk", "-:", "p:g/a x:1", "p:g/a /x", "p:g/a /x:-1", "  -:g/a"):
            reply = answer(text, "--strict")
            self.assertEqual((reply["errno"], reply["error"], reply["caret"]), ("EINVAL", None, None), text)
            self.assertIn("the kernel refuses this without a message", check(text, "--strict")[2])

    def test_a_missing_file_of_definitions(self):
        done = subprocess.run([harness.tool(), "--check", "--json", "-i", self.path("gone")], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
        self.assertEqual((done.returncode, done.stdout), (125, b""))
        self.assertIn(b"No such file or directory", done.stderr)


if __name__ == "__main__":
    harness.main()
