"""--check against what a kernel answered to 807 writes, row by row, and the forms in which it is told."""
import json
import os
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
    told = json.loads(out)
    assert code == (0 if told["accepted"] else 125), (code, out)
    return told


class Recorded(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.files = corpus.Files(self.folder, GROUP)

    def test_strict_answers_as_the_kernel_did(self):
        rows = corpus.read_rows()
        self.assertEqual(len(rows), 807)
        different = []
        for row in rows:
            told = answer(self.files.expand(row.definition), "--strict")
            expected = asdict(self.files.expected(row))
            if not row.has_formats():
                expected["formats"] = told["formats"]
            if told != expected:
                different.append((row.definition, told, expected))
        self.assertEqual(different, [])

    def test_extensions_never_change_what_the_kernel_accepts(self):
        """The same listing, or a refusal."""
        for row in corpus.read_rows():
            if not row.answer.accepted:
                continue
            told = answer(self.files.expand(row.definition))
            if told["accepted"]:
                self.assertEqual(told["listing"], self.files.expected(row).listing, row.definition)


if __name__ == "__main__":
    harness.main()
