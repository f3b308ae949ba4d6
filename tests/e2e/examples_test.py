# SPDX-License-Identifier: MIT
"""docs/examples.md is true: every command in it is run, and prints what the document says.

In the document a line "    $ COMMAND" is a command, indented lines after it are its output, "..." stands for any lines.
The commands of a section run in one shell, in a folder of their own in which ./prog is the fixture `examples`. Compared is all
but process ids, CPUs, times and numbers that are addresses. After a change:

    python3 tests/e2e/examples_test.py --tool build/uprobe-run --fixtures build/tests/e2e/fixtures --source . write
"""
import os
import re
import shutil
import sys
from dataclasses import dataclass, field

import harness

DOCUMENT = "docs/examples.md"
INDENT, PROMPT, ANYTHING = "    ", "    $ ", "..."
MARK = "\x01"
MASKS = [(re.compile(pattern, re.M), masked) for pattern, masked in (
    (r"^ *(\S+)-\d+ +\[\d+\] (\S{5} +)?\d+\.\d{6}: ", r"\1-PID [CPU] TIME: "),  # the head of a record
    (r"(zfree_\w+: .* arg2=)\S+", r"\1AX"),  # whatever the register holds
    (r"0x[0-9a-f]{5,}", "0xADDRESS"),
    (r"\b(?:[0-9a-f]{9,16}|[56][0-9a-f]{11})\b", "ADDRESS"),
    (r"/0x[0-9a-f]+\b", "/SIZE"),
    (r"\+0x[0-9a-f]+\b", "+DISTANCE"),
)]


@dataclass
class Command:
    text: str
    line: int  # of its output in the document
    output: list = field(default_factory=list)


def sections(lines):
    """Lists of commands, one for each heading that has any. An empty line belongs to what stands around it."""
    found, command, continued, empty = [[]], None, False, []
    for number, line in enumerate(lines):
        if continued:
            command.text += "\n" + line
        elif line.startswith(PROMPT):
            command, empty = Command(line[len(PROMPT):], 0), []
            found[-1].append(command)
        elif command and line.startswith(INDENT):
            command.output += [*empty, line[len(INDENT):]]
            empty = []
            continue
        elif command and not line:
            empty.append("")
            continue
        else:
            command = None
            if line.startswith("#"):
                found.append([])
            continue
        continued = line.endswith("\\")
        command.line = number + 1
    return [section for section in found if section]


def masked(lines):
    text = "\n".join(line.rstrip() for line in lines)
    for pattern, replacement in MASKS:
        text = pattern.sub(replacement, text)
    return text


def as_pattern(lines):
    """Of masked lines: "..." is any number of lines."""
    parts = [".*" if line == ANYTHING else re.escape(line) + r"\n" for line in masked(lines).split("\n")] if lines else []
    return re.compile("".join(parts), re.S)


class Shell:
    """Runs the commands of a section."""

    def __init__(self, folder):
        self.folder = folder
        shutil.copy(harness.fixture("examples"), os.path.join(folder, "prog"))
        path = os.path.dirname(os.path.abspath(harness.tool())) + ":" + os.environ["PATH"]
        library = os.path.join(os.path.dirname(os.path.abspath(harness.tool())), "libuprobe.so")
        self.env = {"PATH": path, "HOME": folder, "LC_ALL": "C", "TERM": "dumb", "LIBUPROBE": library}

    def run(self, commands):
        script = "".join(f"{{ {command.text}\n}} 2>&1\nprintf '{MARK}'\n" for command in commands)
        done = harness.run(["/bin/bash", "-c", script], env=self.env, cwd=self.folder)
        outputs = done.stdout.decode("latin-1").split(MARK)
        if len(outputs) != len(commands) + 1 or done.stderr:
            raise AssertionError(f"a section did not run to its end: {done.stdout} {done.stderr}")
        return [output.splitlines() for output in outputs[:-1]]


def read_document():
    with open(os.path.join(harness.Options.source, DOCUMENT), encoding="utf-8") as file:
        return file.read().splitlines()


class Examples(harness.TestCase):
    def test_the_document(self):
        for program in ("zsh", "objdump", "nm"):
            harness.need(program)
        tried = 0
        for section in sections(read_document()):
            folder = self.path(f"section{tried}")
            os.mkdir(folder)
            for command, output in zip(section, Shell(folder).run(section)):
                tried += 1
                with self.subTest(command=command.text):
                    printed = "".join(line + "\n" for line in masked(output).split("\n")) if output else ""
                    self.assertTrue(as_pattern(command.output).fullmatch(printed),
                                    f"{DOCUMENT}:{command.line + 1}\n--- said\n{masked(command.output)}\n--- is\n{printed}")
        self.assertGreater(tried, 30)

    def test_every_form_of_the_documents_is_in_it(self):
        """Sections of the kernel's documents that it follows, as far as a program has them."""
        text = "\n".join(read_document())
        for form in ("p: /bin/bash:$offset", "r: /bin/bash:$offset", "-:bash_$offset", "echo > uprobe_events", "p:zfree_entry /bin/zsh:", "r:zfree_exit",
                     "%ip %ax", "print fmt:", "(symbol ip[16] | x64[6] irq_stack[16])", "(symbol read+40[0]+16)",
                     "(int dfd, string path, x32 flags, x16 mode)", "a0 a1 a2 a3", "rv ra", "--profile"):
            self.assertIn(form, text)


class Language(harness.TestCase):
    """docs/language.md: each row of its tables names tests, and there are such tests."""

    def setUp(self):
        super().setUp()
        self.tests = {}
        for folder, _, names in os.walk(os.path.join(harness.Options.source, "tests")):
            for name in names:
                if name.endswith(("_test.py", "_test.cpp")):
                    with open(os.path.join(folder, name), encoding="utf-8") as file:
                        self.tests[name.rsplit(".", 1)[0]] = file.read()

    def exists(self, test):
        """"Suite.Name" in C++, "e2e_FILE: test_NAME" in Python; further names are of the same file."""
        if test.startswith("e2e_"):
            file, _, name = test[4:].partition(": ")
            self.file = self.tests.get(file + "_test", "")
            return bool(self.file) and f"def {name}(" in self.file
        if test.startswith("test_"):
            return f"def {test}(" in self.file
        return any(re.search(rf"TEST(_F)?\({test.replace('.', ', ')}\)", text) for text in self.tests.values())

    def test_each_row_names_its_tests(self):
        with open(os.path.join(harness.Options.source, "docs/language.md"), encoding="utf-8") as file:
            rows = [line.strip("|\n ").split(" | ") for line in file if line.startswith("| ")]
        rows = [row for row in rows if row[0] not in ("here", "---")]
        self.assertGreater(len(rows), 30)
        for row in rows:
            with self.subTest(row[0]):
                self.assertEqual(len(row), 4)
                self.assertEqual([test for test in row[3].split(", ") if not self.exists(test)], [])


def write():
    """The document with the commands' current output. "..." stays."""
    import tempfile
    lines = read_document()
    changes = []
    for section in sections(lines):
        with tempfile.TemporaryDirectory() as folder:
            for command, output in zip(section, Shell(folder).run(section)):
                if ANYTHING not in command.output:
                    changes.append((command, output))
    for command, output in sorted(changes, key=lambda change: -change[0].line):
        lines[command.line:command.line + len(command.output)] = [(INDENT + line).rstrip() for line in output]
    with open(os.path.join(harness.Options.source, DOCUMENT), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    if sys.argv[-1] == "write":
        for name in ("tool", "fixtures", "source"):
            setattr(harness.Options, name, sys.argv[sys.argv.index("--" + name) + 1])
        write()
    else:
        harness.main()
