# SPDX-License-Identifier: MIT
"""The kernel's recorded trace output (tests/data/kernel-traces.tsv) against the tool's output for the same calls.

Tokens of the table and the normalisation of the output are those of tests/data/make-traces.sh, which recorded it. With
--kernel the rows are run on the running kernel instead of the tool: that checks this test.
"""
import os
import re
import subprocess
import sys
import unittest

import harness
import oracle
from elf_reader import Elf

GROUP = "corpus"
KERNEL = "--kernel" in sys.argv

# Where the tool does better than the kernel, on purpose: (tag, definition contains) -> (expected output, reason)
IMPROVED = {
    ("immediate-string", ""): (
        r'e: (@A:t_args@) arg1="abc" arg2="" a="a"b" arg4="%d%s"',
        "the kernel reads an immediate string as a user pointer to its own memory, which always faults"),
    ("fault-nested-alias", ""): (
        'e: (@A:t_ptr@) a=(fault) b="corpus-target"',
        "the kernel prints the bytes of the next string for a string whose inner dereference failed"),
    ("ret-bitfield", ""): (
        'e: (@RET@ <- @A:t_ret@) arg1=11 arg2="tag"',
        "as immediate-string"),
    ("depth-limit", ""): (
        r"\n".join(f"e: (@RET@ <- @A:t_rec@) arg1={n}" for n in range(1, 72)),
        "the kernel sees the returns of the 64 outermost calls alone"),
}

# Strings and records at the kernel's limits, which hold with --strict.
LONG = ("string-long", "string-limit")

READS_TEXT = "@+@OFF:t_args@"

# What this version refuses, exit code 125 before anything starts: tag -> reason
REFUSED = {
    "offset-truncation": "the kernel cuts offsets to 32 bits in silence and reads another place than the one asked for",
    "ret-suffix-ignored": "the kernel takes anything that begins with $retval for it",
}


def unescape(text):
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), text, flags=re.S)


def escape(text):
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def read_rows():
    path = os.path.join(harness.Options.source, "tests/data/kernel-traces.tsv")
    with open(path, encoding="latin-1", newline="\n") as file:
        lines = [line.rstrip("\n") for line in file if line.strip("\n")]
    assert lines[0].split("\t")[0] == "definition"
    rows = []
    for line in lines[1:]:
        definition, call, output, tag = line.split("\t")
        rows.append((unescape(definition), call, output, tag))
    return rows


class Target:
    """corpus-target: its symbols by file offset, and the places of one running instance."""

    def __init__(self, path):
        self.path = path
        elf = Elf(path)
        self.value = elf.symbols
        self.offset = {}
        self.name = {}
        for name, address in elf.symbols.items():
            try:
                self.offset[name] = elf.offset_of_address(address)
            except ValueError:
                continue  # not in the file: .bss, absolute symbols
            self.name[address] = name

    def expand(self, definition):
        text = definition.replace("@BIN@", self.path).replace("@G@", GROUP)
        text = re.sub(r"@VAL:(\w+)@", lambda m: f"{self.value[m[1]]:#x}", text)
        return re.sub(r"@OFF:(\w+)(\+\d+)?@", lambda m: f"{self.offset[m[1]] + int(m[2] or 0):#x}", text)

    def locate(self, pid):
        self.base = self.text = self.stack = None
        with open(f"/proc/{pid}/maps", encoding="latin-1") as file:
            for line in file:
                low, high = (int(word, 16) for word in line.split()[0].split("-"))
                if line.rstrip("\n").endswith(self.path):
                    self.base = low if self.base is None else self.base
                    if "r-xp" in line:
                        self.text = (low, high)
                if "[stack]" in line:
                    self.stack = (low, high)

    def normalise(self, line, definition):
        def head(match):
            value = int(match[1], 16)
            if not self.text[0] <= value < self.text[1]:  # another process of the program: the offset in the page tells
                for name in re.findall(r"@OFF:(\w+)@", definition):
                    if (self.offset[name] ^ value) & 0xfff == 0:
                        return f": (@A:{name}@)"
            return match[0]

        def address(match):
            value = int(match[0], 16)
            if self.text[0] <= value < self.text[1]:
                name = self.name.get(value - self.base)
                return f"@A:{name}@" if name else "@TEXT@"
            return "@STACK@" if self.stack[0] <= value < self.stack[1] else match[0]

        line = re.sub(r": \((0x[0-9a-f]+)\)", head, line, count=1)
        line = re.sub(r"\((0x[0-9a-f]+) <- (0x[0-9a-f]+)\)",
                      lambda m: "(@RET@ <- %s)" % address(re.match(".*", m[2])), line)
        line = re.sub(r"0x[0-9a-f]{8,}", address, line)
        line = re.sub(r"([^\\0-9])\1{39,}", lambda m: f"@REP:{m[1]}:{len(m[0])}@", line)
        return re.sub(r"[\x00-\x1f\x7f-\xff]", lambda m: "\\x%02x" % ord(m[0]), escape(line))

    def converse(self, process, call):
        """Has a started `corpus-target run` make the calls; its own process is found by its file."""
        assert process.stdout.readline() == b"ready\n", process.stderr.read()
        candidates = [process.pid, *harness.descendants(process.pid)]
        mine = [pid for pid in candidates if os.path.realpath(f"/proc/{pid}/exe") == self.path]
        assert len(mine) == 1, f"not one process of corpus-target: {mine}"
        self.locate(mine[0])
        process.stdin.write(call.encode() + b"\n")
        process.stdin.flush()
        while process.stdout.readline() not in (b"ready\n", b""):
            pass


class Traces(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.target = Target(os.path.realpath(self.copy_of(harness.fixture("corpus-target"))))

    def start(self, words, before_exec=None):
        process = subprocess.Popen([*words, self.target.path, "run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True, preexec_fn=before_exec)
        self.addCleanup(harness.stop_group, process)
        return process

    def by_tool(self, definition, call, tag):
        output = self.path("trace")
        # a program that reads its own text finds the first byte of what stands there: the kernel's breakpoint, or ours
        words = [harness.tool(), "--raw-strings", "-o", output, *(["--tier=int3"] if READS_TEXT in definition else []),
                 *(["--strict"] if tag.startswith(LONG) else [])]
        for line in self.target.expand(definition).split("\n"):
            words += ["-p", line]
        process = self.start([*words, "--"])
        self.target.converse(process, call)
        _, complaints = process.communicate(timeout=harness.TIMEOUT)
        self.assertEqual(process.returncode, 0, complaints)
        with open(output, encoding="latin-1", newline="") as file:
            return file.read()

    def by_kernel(self, definition, call, _):
        oracle.require()
        lines = [line.replace(GROUP + "/", "", 1) for line in self.target.expand(definition).split("\n")]
        with oracle.Oracle(lines) as kernel:
            process = self.start([], kernel.follow_this_process)
            self.target.converse(process, call)
            process.communicate(timeout=harness.TIMEOUT)
            return kernel.read_trace()

    def printed(self, source, definition, call, tag):
        hits = harness.parse_trace(source(definition, call, tag))
        return "\\n".join(self.target.normalise(f"{hit.event}: {hit.rest}", definition) for hit in hits)

    def expected(self, definition, output, tag):
        for (improved, part), (better, _) in IMPROVED.items():
            if tag == improved and part in definition:
                return better
        return output

    def test_rows_print_what_the_kernel_printed(self):
        for number, (definition, call, output, tag) in enumerate(read_rows(), 2):
            if tag in REFUSED:
                continue
            with self.subTest(row=number, tag=tag, definition=definition, call=call):
                expected = output if KERNEL else self.expected(definition, output, tag)
                self.assertEqual(self.printed(self.by_kernel if KERNEL else self.by_tool, definition, call, tag),
                                 expected)

    @unittest.skipIf(KERNEL, "the kernel does not refuse them")
    def test_rows_of_later_versions_are_refused_before_anything_starts(self):
        for number, (definition, call, _, tag) in enumerate(read_rows(), 2):
            if tag not in REFUSED:
                continue
            with self.subTest(row=number, tag=tag, definition=definition):
                seen = harness.run_tool(self.target.expand(definition).split("\n"), [self.target.path, *call.split()])
                self.assertEqual(seen.returncode, 125, seen.stderr)
                self.assertEqual(seen.stdout, b"")
                self.assertIn(b"uprobe-run: ", seen.stderr)


if __name__ == "__main__":
    if KERNEL:
        sys.argv.remove("--kernel")
    harness.main()
