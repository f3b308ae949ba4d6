# SPDX-License-Identifier: MIT
"""The manual pages: complete, and without a warning of the programs that show them."""
import glob
import os
import re
import subprocess

import harness


class Pages(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.pages = {os.path.basename(path): path
                      for path in glob.glob(os.path.join(os.path.dirname(harness.tool()), "packaging/manual/*.[135]"))}
        self.assertEqual(sorted(self.pages), ["uprobe-definitions.5", "uprobe-run.1", "uprobe-session.3"])

    def shown(self, name):
        """A page as man(1) shows it: plain text without breaks in words."""
        page = subprocess.run(["groff", "-man", "-Tascii", "-P-cbou", "-rLL=500n", self.pages[name]], check=True, capture_output=True)
        return page.stdout.decode()

    def test_they_are_free_of_warnings(self):
        for name, path in self.pages.items():
            for command in (["groff", "-man", "-ww", "-Tutf8", "-Kutf8"], ["man", "--warnings", "-l"], ["mandoc", "-Tlint", "-Wwarning"]):
                with self.subTest(name, command=command):
                    harness.need(command[0])
                    seen = subprocess.run([*command, path], capture_output=True, check=False,
                                          env={**os.environ, "LC_ALL": "C.UTF-8"})
                    self.assertEqual((seen.returncode, seen.stderr), (0, b""))
                    if command[0] == "mandoc":
                        self.assertEqual(seen.stdout, b"")

    def test_each_option_of_the_help_is_there_with_its_words(self):
        harness.need("groff")
        text = self.shown("uprobe-run.1")
        lines = [line.strip() for line in text.split("\n")]
        options = re.findall(r"^  (-\w, |    )(--[\w-]+\S*)(?: +(\S+ \S+))?", harness.run([harness.tool(), "--help"]).stdout.decode(), re.M)
        self.assertGreater(len(options), 45)
        for letter, option, words in options:
            head = letter.strip() + " " * bool(letter.strip()) + option
            found = [at for at, line in enumerate(lines) if line == head or line.startswith(head + " ")]
            self.assertEqual(len(found), 1, head)
            self.assertIn(words, " ".join(lines[found[0]:found[0] + 2]))

    def test_the_sections_of_the_command(self):
        harness.need("groff")
        text = self.shown("uprobe-run.1")
        sections = re.findall(r"^[A-Z][A-Z ]+$", text, re.M)
        self.assertEqual(sections, ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "DEFINITIONS", "EXIT STATUS", "EXAMPLES", "ENVIRONMENT",
                                    "SEE ALSO"])
        for line in harness.run([harness.tool(), "--help"]).stdout.decode().split("\n"):
            if line.startswith(("Usage:", "  uprobe-run ")):
                self.assertIn(line.replace("Usage:", "").strip(), text)
        self.assertIn("125 when uprobe-run itself fails", text)
        self.assertIn("UPROBE_PROBES_FILE", text)

    def check_source(self, page, path, pattern, least):
        """All that the pattern finds in the file is in the page."""
        harness.need("groff")
        text = self.shown(page)
        with open(os.path.join(harness.Options.source, path), encoding="utf-8") as file:
            found = re.findall(pattern, file.read(), re.M)
        self.assertGreater(len(found), least)
        for words in found:
            self.assertIn(words, text)

    def test_the_rows_of_the_guide_are_in_definitions(self):
        self.check_source("uprobe-definitions.5", "docs/guide.md", r"^\| `([^`]+)`", 20)

    def test_each_function_of_the_header_is_in_session(self):
        self.check_source("uprobe-session.3", "library/uprobe/session.h", r"^  (?:static )?\S+(?: \S+)? (\w+\(.*\)).*;", 10)


if __name__ == "__main__":
    harness.main()
