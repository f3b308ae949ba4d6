# SPDX-License-Identifier: MIT
"""docs/output.md is true: each command in it that begins with "$" is run, and prints what the document says.

Compared is all but addresses, times, process ids, CPUs, and the order of JSON lines: a process may be told of a moment later.
Commands of a program that is not installed are left out.
"""
import os
import re
import shutil

import harness

DOCUMENT = "docs/output.md"
COMMAND = re.compile(r"^( {4,})\$ (.*)$")
OPTIONAL = ("trace-cmd", "babeltrace2", "go")
MARK = "\x01"
SOURCE = """
#include <unistd.h>
#define PLAIN __attribute__((noinline, noclone))
PLAIN void leaf(int n) { if (n == 3) usleep(2000); __asm__ volatile(""); }
PLAIN int down(int n) { int below = n == 0 ? 100 : down(n - 1); __asm__ volatile(""); return below + 1; }
PLAIN int top(int n) { int result = down(n); leaf(n); return result; }
int main(void) { return top(1) + top(3) == 206 ? 0 : 1; }
"""
MASKS = [(re.compile(pattern, re.M), masked) for pattern, masked in (
    (r'"time":\d+\.\d{9}', '"time":TIME'),
    (r"^\d+ (?=python3;)", "COUNT "),  # the environment's variables count, too
    (r'"(pid|tid|parent|cpu)":\d+', r'"\1":NUMBER'),
    (r',"parent":NUMBER', ""),  # where it could be told
    (r"^ *(\S+)-\d+ +(\[\d+\] +)?\d+\.\d{6}", r"\1 TIME"),
    (r"^\[\d+\.\d{9}\] \(\+\S+\)", "TIME"),
    (r"(cpu_id|vpid|vtid) = \d+", r"\1 = NUMBER"),
    (r" +\d+\.\d{3} us", " LATENCY"),
    (r"\b0[xX][0-9a-fA-F]{5,}", "ADDRESS"),
    (r"\((?=[0-9a-f]{9,16}\))[0-9a-f]+", "(ADDRESS"),
    (r"^cpus=\d+", "CPUS"),
    (r"Build ID: [0-9a-f]+", "BUILD ID"),
    (r" *\b\d+(\.\d+)?(us|ms|%)", " SHARE"),
)]


class Command:
    def __init__(self, indent, text, line):
        self.indent, self.text, self.line, self.output = indent, text, line, []


def sections(lines):
    """The commands under each heading, with the lines that follow each at its indentation."""
    found, command = [[]], None
    for number, line in enumerate(lines, 1):
        match = COMMAND.match(line)
        if match:
            command = Command(match[1], match[2], number)
            found[-1].append(command)
        elif command and command.text.endswith("\\"):
            command.text += "\n" + line
        elif command and line.startswith(command.indent):
            command.output.append(line[len(command.indent):])
        else:
            command = None
            if line.startswith("#"):
                found.append([])
    return [section for section in found if section]


def masked(lines):
    text = "\n".join(line.rstrip() for line in lines)
    for pattern, replacement in MASKS:
        text = pattern.sub(replacement, text)
    lines = text.split("\n") if text else []
    return sorted(lines) if lines and lines[0].startswith("{") else lines


class Examples(harness.TestCase):
    def setUp(self):
        super().setUp()
        tool = os.path.abspath(harness.tool())
        self.program = harness.compiled([harness.need("cc"), "-O1", self.write("prog.c", SOURCE)], self.path("prog"))
        self.env = {"PATH": os.path.dirname(tool) + ":" + os.environ["PATH"], "HOME": self.path(""), "LC_ALL": "C", "TERM": "dumb"}

    def outputs(self, commands):
        script = "".join(f"{{ {command.text.replace('build/uprobe-run', 'uprobe-run')}\n}} 2>&1\nprintf '{MARK}'\n" for command in commands)
        folder = self.path(f"line{commands[0].line}")
        os.mkdir(folder)
        shutil.copy(self.program, folder)
        done = harness.run(["/bin/bash", "-c", script], env=self.env, cwd=folder)
        found = done.stdout.decode("latin-1").split(MARK)
        self.assertEqual((len(found), done.stderr), (len(commands) + 1, b""), done.stdout)
        return [output.splitlines() for output in found[:-1]]

    def test_the_document(self):
        with open(os.path.join(harness.Options.source, DOCUMENT), encoding="utf-8") as file:
            found = sections(file.read().splitlines())
        tried = 0
        for section in found:
            section = [command for command in section if shutil.which(command.text.split()[0]) or command.text.split()[0] not in OPTIONAL]
            for command, output in zip(section, self.outputs(section)):
                tried += 1
                said, printed = masked(command.output), masked(output)
                if "--min-latency" in command.text:
                    printed = printed[-len(said):]  # on a slow machine the first call lasts so long, too
                with self.subTest(line=command.line):
                    self.assertEqual(said, printed, f"{DOCUMENT}:{command.line}\n" + "\n".join(output))
        self.assertGreater(tried, 6)


if __name__ == "__main__":
    harness.main()
