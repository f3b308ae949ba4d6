# SPDX-License-Identifier: MIT
"""The recorded answers of a kernel to definitions (tests/data/kernel-corpus.tsv), with values for their tokens.

A row's definition is one write to uprobe_events; make-corpus.sh, which recorded them, explains the tokens. Bytes are
Latin-1 characters everywhere, as there.
"""
import json
import os
import re
import subprocess
from dataclasses import dataclass, field

import harness

FILES = ("corpus-target", "libx-1.2.so", ".hidden", "_lead", "9digit", "no+good", "with:colon", "UPPER",
         "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghij", "emptyfile", "script")
TOKEN = re.compile(r"@(BIN|DIR|G|GFILL[0-9]+)@|@(OFF|OFFD|OFFO|OFF16|OFFU):([A-Za-z_0-9]+)(\+[0-9]+)?@")
FORMATS = {"OFF": "0x%x", "OFFD": "%d", "OFFO": "0%o", "OFF16": "0x%016x", "OFFU": "0X%X"}
# The kernel shows freed memory as the format once the first of several probes was deleted: not recorded.
NO_FORMAT = "delete-multi"


class Target(harness.TestCase):
    """With the program of the recorded kernel's answers, built as then."""

    def setUp(self):
        super().setUp()
        harness.tool()
        self.program = self.path("corpus-target")
        source = os.path.join(harness.Options.source, "tests/data/corpus-target.c")
        subprocess.run(["cc", "-O1", "-g", "-fno-inline", "-fcf-protection=none", "-fno-omit-frame-pointer", "-pthread",
                        "-o", self.program, source], check=True)


@dataclass
class Answer:
    """The result of a write. Without an entry in error_log, error and caret are None."""
    accepted: bool
    errno: str = None
    error: str = None
    caret: int = None
    listing: list = field(default_factory=list)
    formats: list = field(default_factory=list)


@dataclass
class Row:
    definition: str  # with tokens
    tag: str
    answer: Answer  # with tokens, but for the caret's column, which is in the row's own text

    def has_formats(self):
        return self.tag != NO_FORMAT


def unescape(text):
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t", "r": "\r"}.get(m[1], m[1]), text, flags=re.S)


def words(line):
    """A line as the kernel quotes it: its words with single blanks between them, without comment."""
    return " ".join(word for word in re.split(r"[ \t-\r\xa0]+", line.split("#")[0]) if word)


def read_rows():
    rows = []
    path = os.path.join(harness.Options.source, "tests/data/kernel-corpus.tsv")
    with open(path, encoding="latin-1", newline="\n") as file:
        for line in list(file)[1:]:
            definition, accepted, errno, listing, error, caret, formats, tag = line.rstrip("\n").split("\t")
            answer = Answer(accepted == "1", errno or None, unescape(error) or None, int(caret) if caret else None,
                            unescape(listing).split("\n") if listing else [], json.loads(formats) if formats else [])
            rows.append(Row(unescape(definition), tag, answer))
    return rows


class Files:
    """The files that definitions name, in a folder of a test; symbols get offsets when they are first seen."""

    def __init__(self, folder, group):
        self.folder, self.group, self.offsets = folder, group, {}
        for name in FILES:
            with open(os.path.join(folder, name), "wb"):
                pass
        os.mkdir(os.path.join(folder, "dir"))
        os.mkfifo(os.path.join(folder, "fifo"))
        os.symlink("corpus-target", os.path.join(folder, "symlink"))
        os.symlink("nowhere", os.path.join(folder, "dangling"))

    def value(self, match):
        if match[1]:
            if match[1].startswith("GFILL"):
                return self.group.ljust(int(match[1][5:]), "g")
            return {"BIN": self.folder + "/corpus-target", "DIR": self.folder, "G": self.group}[match[1]]
        offset = self.offsets.setdefault(match[3], 0x1d41 + 0x137 * len(self.offsets))
        return FORMATS[match[2]] % (offset + int(match[4] or 0))

    def expand(self, text):
        return "\n".join(padded(line) for line in TOKEN.sub(self.value, text).split("\n"))

    def expand_all(self, node):
        """The same in every string of a JSON value."""
        if isinstance(node, str):
            return self.expand(node)
        if isinstance(node, list):
            return [self.expand_all(one) for one in node]
        return {key: self.expand_all(one) for key, one in node.items()} if isinstance(node, dict) else node

    def expected(self, row):
        """The row's answer with its tokens replaced; the caret moves with those before it in the line that failed, which
        is the one after those that are listed, or the last."""
        told = row.answer
        answer = Answer(told.accepted, told.errno, told.error, None, self.expand_all(told.listing),
                        self.expand_all(told.formats))
        if told.caret is not None:
            failed = row.definition.split("\n")[min(row.definition.rstrip("\n").count("\n"), len(told.listing))]
            answer.caret = self.caret(words(failed), told.caret)
        return answer

    def caret(self, text, column):
        beyond = max(0, column - len(text))
        return len(self.expand(text[:column])) + beyond


def padded(line):
    """@PADn@: as many blanks as make the line n bytes long."""
    match = re.search(r"@PAD(\d+)@", line)
    return line if not match else line.replace(match[0], " " * (int(match[1]) - len(line) + len(match[0])))
