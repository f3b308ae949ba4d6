# SPDX-License-Identifier: MIT
"""--check --strict against this machine's kernel: definitions that are not in the recorded corpus, made from the recorded ones.

Each is written to uprobe_events, compared and removed again; nothing is enabled and nothing runs. All events have
this process in their group's name or their file's. By hand, for longer: CHECK_SEED=7 CHECK_CASES=2000 ...
"""
import errno
import json
import os
import random
import re
import subprocess

import corpus
import harness
import oracle

SEED = int(os.environ.get("CHECK_SEED", "1"))
CASES = int(os.environ.get("CHECK_CASES", "2000" if harness.LONG else "250"))
EVENTS = f"{oracle.TRACEFS}/uprobe_events"
# Separators between the parts of definitions, and numbers at their limits.
CHARACTERS = list("+-0x:()[]@%$\\\"=/.,_u1b \tpr~#*&\xa0\xe9\r")
NUMBERS = ["0", "00", "1", "-1", "+1", "0x", "0x0", "08", "64", "65", "128", "2147483647", "2147483648", "4294967295",
           "4294967296", "0x7fffffffffffffff", "0x8000000000000000", "18446744073709551615", "18446744073709551616"]
PIECES = ["$stack", "$stack1", "$retval", "$comm", "$arg1", "$arg", "$", "%di", "%", "%ip", "+0(%di)", "-8($stack)",
          "+u4(%si)", "@0x10", "@+0x10", "@sym", "\\5", '\\"text"', ":u8", ":s32", ":x64[3]", ":string", ":ustring",
          ":string[2]", ":char", ":b3@1/8", ":b40@0/64", "a=", "arg1=", "=", "%return", "(0x10)", "()", "(", ")", "foo",
          ":symbol", ":%pd", "+(", "name=%di:u16"]


class Kernel:
    """uprobe_events as make-corpus.sh asks it. The test's events are known by the folder in their path, and their group."""

    def __init__(self, folder, group):
        self.marks = (folder, f":{group}")

    def listing(self):
        with open(EVENTS, encoding="latin-1", newline="\n") as file:
            return [line.rstrip("\n") for line in file if any(mark in line for mark in self.marks)]

    @staticmethod
    def write(text):
        descriptor = os.open(EVENTS, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, text.encode("latin-1"))
            return 0
        except OSError as failed:
            return failed.errno
        finally:
            os.close(descriptor)

    def clear(self):
        """A deletion can fail for a moment while another process of the machine reads all events."""
        def cleared():
            for line in reversed(self.listing()):
                self.write(f"-:{line.split()[0][2:]}\n")
            return not self.listing()
        harness.wait_until(cleared, "the kernel to let events go")

    @staticmethod
    def errors():
        with open(f"{oracle.TRACEFS}/error_log", encoding="latin-1", newline="\n") as file:
            return re.findall(r"^\[ *([0-9.]+)\] (\w+: )error: (.*)\n  Command: (.*)\n( *)\^", file.read(), re.M)

    @staticmethod
    def format_of(event):
        path = f"{oracle.TRACEFS}/events/{event}/format".encode("latin-1")
        with open(path, encoding="latin-1", newline="\n") as file:
            text = file.read()
        fields = [[declaration, int(offset), int(size), int(signed)] for declaration, offset, size, signed in
                  re.findall(r"field:(.*?);\toffset:(\d+);\tsize:(\d+);\tsigned:(\d);", text)
                  if " common_" not in declaration]
        return {"event": event, "print_fmt": re.search(r"print fmt: (.*)", text)[1], "fields": fields}

    def ask(self, text):
        """As --check --json says it; formats are left out after deletions (freed memory, see corpus.NO_FORMAT)."""
        before = {(entry[0], entry[3]) for entry in self.errors()}
        failed = self.write(text)
        told = {"accepted": failed == 0, "errno": errno.errorcode[failed].replace("ENOTSUP", "EOPNOTSUPP")
                if failed else None, "error": None, "caret": None, "listing": self.listing(), "formats": None}
        commands = {corpus.words(line) for line in text.split("\n")}
        for stamp, subsystem, message, command, blanks in reversed(self.errors()):
            if failed and command in commands and (stamp, command) not in before:
                told.update(error=subsystem + message, caret=len(blanks) - len("  Command: "))
                break
        if "-:" not in text:
            events = list(dict.fromkeys(line.split(" ")[0][2:] for line in told["listing"]))
            told["formats"] = [self.format_of(event) for event in events]
        self.clear()
        return told


class Maker:
    """Definitions like the recorded ones, with a few things changed."""

    def __init__(self, rows, seed):
        self.random = random.Random(seed)
        self.texts = [row.definition for row in rows if "\n" not in row.definition.rstrip("\n")]
        self.heads = [text for text in self.texts if text.startswith(("p:@G@/e @BIN@", "r:@G@/e @BIN@"))]
        self.arguments = sorted({word for text in self.texts for word in text.split()[2:]})

    def make(self):
        pick = self.random.random()
        if pick < 0.15:
            return "\n".join(self.one() for _ in range(self.random.randint(2, 4)))
        if pick < 0.25:
            return self.deletion()
        return self.one()

    def one(self):
        choose = self.random.choice
        text = choose(self.texts if self.random.random() < 0.6 else self.heads)
        for _ in range(self.random.randint(1, 2)):
            text = choose([self.character, self.number, self.piece, self.argument, self.type, self.nest])(text)
        return text

    def deletion(self):
        """One or two definitions and a deletion that resembles one of them."""
        lines = [self.random.choice(self.heads).rstrip("\n") for _ in range(self.random.randint(1, 2))]
        victim = self.random.choice(lines).split("#")[0].split()
        words = ["-:@G@/e", *victim[1:self.random.randint(1, len(victim))]]
        if len(words) > 1:
            words[1] = words[1].replace("@OFF:", "@OFF16:")
        words[2:] = [word if "=" in word else f"arg{i}={word}" for i, word in enumerate(words[2:], 1)]
        return "\n".join([*lines, " ".join(words)])

    def cut(self, text):
        """A place in the text outside of all tokens."""
        spans = [match.span() for match in re.finditer(r"@[A-Z0-9]+(?::\w+)?(?:\+\d+)?@", text)]
        places = [i for i in range(2, len(text) + 1) if not any(begin < i < end for begin, end in spans)]
        return self.random.choice(places) if places else len(text)

    def character(self, text):
        at = self.cut(text)
        if self.random.random() < 0.3 and at < len(text) and text[at] != "@":
            return text[:at] + text[at + 1:]
        return text[:at] + self.random.choice(CHARACTERS) + text[at:]

    def number(self, text):
        numbers = [match for match in re.finditer(r"(?<![\w@:])\d+|0x[0-9a-f]+", text)]
        if not numbers:
            return self.piece(text)
        match = self.random.choice(numbers)
        return text[:match.start()] + self.random.choice(NUMBERS) + text[match.end():]

    def piece(self, text):
        at = self.cut(text)
        return text[:at] + self.random.choice(PIECES) + text[at:]

    def argument(self, text):
        return " ".join([text.rstrip("\n"), *self.random.sample(self.arguments, self.random.randint(1, 3))])

    def type(self, text):
        return text.rstrip("\n") + self.random.choice([piece for piece in PIECES if piece.startswith(":")])

    def nest(self, text):
        head, blank, last = text.rstrip("\n").rpartition(" ")
        name, equals, body = last.rpartition("=")
        fetch, colon, kind = body.partition(":")
        depth = self.random.choice([1, 1, 2, 3, 13, 14, 15])
        opening = "".join(self.random.choice(["+0(", "-8(", "+u8(", "-u0(", "+-4(", "+("]) for _ in range(depth))
        return head + blank + name + equals + opening + fetch + ")" * depth + colon + kind


class Live(harness.TestCase):
    def setUp(self):
        super().setUp()
        oracle.require()
        turn = oracle.Turn()
        turn.__enter__()
        self.addCleanup(turn.__exit__)
        self.group = f"{oracle.PREFIX}{os.getpid()}"
        self.folder = os.path.realpath(self.folder)
        self.files = corpus.Files(self.folder, self.group)
        self.kernel = Kernel(self.folder, self.group)
        self.addCleanup(self.kernel.clear)

    def harmless(self, text):
        """A deletion names the test's group, a definition one of its files: no other process's events are touched."""
        for line in text.split("\n"):
            word = line.split(" ")[0]
            if word.startswith("-:") and not word.startswith(("-:" + self.group, "-:/")):
                return False
            if re.match(r"\s*[pr]", line) and "/" in line and self.folder not in line:
                return False
            # outside of the test's own group names could belong to another process
            if re.match(r"\s*[pr]", line) and not re.match(rf"\s*[pr]:{self.group}", line):
                return False
        return True

    def check(self, text):
        done = subprocess.run([harness.tool(), "--check", "--strict", "--json", "-i", "-"], input=text.encode("latin-1"),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=harness.TIMEOUT, check=False)
        return json.loads(done.stdout)

    def compare(self, text):
        """None, or the difference."""
        told, expected = self.check(text), self.kernel.ask(text)
        if expected["formats"] is None:
            expected["formats"] = told["formats"]
        if told == expected:
            return None
        return {"definition": text, **{key: (told[key], expected[key]) for key in told if told[key] != expected[key]}}

    def test_made_definitions(self):
        maker = Maker(corpus.read_rows(), SEED)
        different, cases, accepted = [], 0, 0
        while cases < CASES:
            text = self.files.expand(maker.make())
            if not self.harmless(text):
                continue
            cases += 1
            difference = self.compare(text)
            accepted += self.check(text)["accepted"]
            if difference:
                different.append(difference)
        self.assertEqual(different, [])
        self.assertGreater(accepted, CASES // 20, "hardly any of the definitions are good ones")


    def test_bytes_and_lengths(self):
        """How the kernel splits writes into lines, across the borders of its buffer of 4096 bytes."""
        def define(name, length=0):
            return f"p:{self.group}/{name} {self.files.expand('@BIN@')}:0x10 %di".ljust(length)
        comment = "# " + "x" * 1000 + "\n"
        texts = [define("a", 4094) + "\n", define("a", 4095) + "\n", define("a", 4095), define("a", 4096),
                 define("a") + "\n" + define("b", 4095), define("a") + "\n" + define("b", 4096),
                 define("a") + "\n" + define("b", 4094) + "\n" + define("c"), comment * 5 + define("a"),
                 comment * 3 + define("a", 1100) + "\n" + comment + define("b") + "\n", "#" * 4094 + "\n" + define("a"),
                 "#" * 4095 + "\n" + define("a"), "\n" * 5000 + define("a"),
                 "".join(define(f"e{i}") + "\n" for i in range(60)),
                 define("a") + "\0", define("a") + "\n\0", define("a") + "\n" + define("b") + "\0\n" + define("c"),
                 "\0" + define("a"), define("a") + " # \0\n" + define("b"), define("a").replace(" ", "\0", 1),
                 define("a") + "\r\n" + define("b") + "\r", define("a").replace(" ", "\xa0"),
                 define("a").replace(" ", "\x0b\x0c"), define("a") + " \xe9=%si", define("\xe9t\xff"),
                 define("a") + ' s=\\"\xc3\xa9"', define("a") + "\x85%si", define("a") + " \x01=%si"]
        different = [difference for difference in map(self.compare, texts) if difference]
        self.assertEqual(different, [])


if __name__ == "__main__":
    harness.main()
