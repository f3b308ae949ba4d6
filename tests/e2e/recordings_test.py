# SPDX-License-Identifier: MIT
"""Recordings that are made to do harm, and what is named in the place of one: a replay takes little memory, ends, and writes to
nothing but its output."""
import itertools
import os
import socket
import struct
import threading
import unittest

import harness
from bounds_test import MOST_MEMORY, run_and_measure

MASK = (1 << 64) - 1
SETTINGS, EVENT, HITS, SYMBOLS, FRAMES, TOTALS = range(1, 7)
PACKED = 11
FORMATS = ("text", "json", "csv", "chrome", "folded", "perf")


def mix(total, word):
    total = (total ^ word) * 0x9e3779b97f4a7c15 & MASK
    return (total << 29 | total >> 35) & MASK


def sum_of(data, lane=0):
    """As docs/recording.md has it."""
    size = (len(data) + 63) // 64 * 64
    words = struct.unpack(f"<{size // 8}Q", data.ljust(size, b"\0"))
    sums = [list(itertools.accumulate(words[i::8], initial=i + 1)) for i in range(8)]
    whole = len(data) | lane << 32
    for word in [part[-1] for part in sums] + [sum(part[1:]) for part in sums]:
        whole = mix(whole, word & MASK)
    return whole


def entry(kind, data):
    return struct.pack("<II", kind, len(data)) + data


def text(value):
    return struct.pack("<I", len(value)) + value


def event(fields, name=b"e", fixed=24):
    """fields: (name, kind, size, offset, count)"""
    data = text(b"g") + text(name) + text(b"place") + text(b"") + struct.pack("<IIII", 0, 0, fixed, len(fields))
    for one, kind, size, offset, count in fields:
        data += text(one) + text(b"") + struct.pack("<IIIIII", kind, size, offset, count, 0, 0)
    return entry(EVENT, data)


def hit(payload, number=0):
    payload = struct.pack("<H", number) + payload[2:]
    record = payload + bytes(-len(payload) % 8)
    return entry(HITS, struct.pack("<IIIB3x16s", 2, 2, 1, 1, b"t") + struct.pack("<IIQIHH", 24 + len(record), 0, 1, len(payload), 0, 0) +
                 record)


def packed(words, ns):
    """Two hits of those words, of which the second says only that they are the same."""
    codes = bytes((len(words) + 3) // 4)
    first = bytes([8 | 16]) + struct.pack("<IQQQQ", 40 + 8 * len(words), 16 + 8 * len(words), 0, 1, ns)
    for at in range(0, len(words), 4):
        four = words[at:at + 4]
        first += bytes([sum(3 << 2 * i for i in range(len(four)))]) + struct.pack(f"<{len(four)}Q", *four)
    return entry(PACKED, struct.pack("<IIIB3x16s", 2, 2, 2, 1, b"t") + first + bytes([0]) + struct.pack("<I", 1) + codes)


def recording(blocks, version=2):
    """blocks: each of lane 0, or with its lane."""
    parts = [struct.pack("<8sII16s", b"UPREC\r\n\0", version, 0, b"1")]
    for block in blocks:
        lane, data = block if isinstance(block, tuple) else (0, block)
        parts.append(struct.pack("<IIQII", 0x4b4c4255, len(data), sum_of(data, lane), lane, 0) + data)
    return b"".join(parts)


class Replays(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.file = self.path("recording")

    def make(self, *blocks, version=2):
        with open(self.file, "wb") as file:
            file.write(recording(blocks, version))

    def good(self):
        self.make(entry(SETTINGS, struct.pack("<II", 0, 100)) + event([(b"k", 0, 8, 16, 0)]) + hit(bytes(24)) + entry(TOTALS, b""))

    def measure(self, *options):
        code, err, memory = run_and_measure([harness.tool(), f"--replay={self.file}", "-o", "/dev/null", *options])
        self.assertLess(memory, MOST_MEMORY, options)
        return code, err


class Bombs(Replays):
    def test_as_many_descriptions_as_there_may_be(self):
        fields = [(b"", 0, 8, 16, 0)] * 256
        one = event(fields)
        blocks = [entry(SETTINGS, struct.pack("<II", 0, 100))]
        for _ in range(4):
            blocks.append(one * ((8 << 20) // len(one)))
        self.make(*blocks, hit(bytes(24)) + entry(TOTALS, b""))
        for name in FORMATS:
            for options in ((), ("--filter=common_pid > 0",)):
                code, err = self.measure(f"--format={name}", *options)
                self.assertEqual((code, err), (0, ""), name)
        self.make(*blocks, one * ((1 << 20) // len(one)), hit(bytes(24)) + entry(TOTALS, b""))
        for name in FORMATS:
            code, err = self.measure(f"--format={name}")
            self.assertEqual(code, 1)
            self.assertRegex(err, r"the recording is damaged at byte \d+: what is before it has been printed")

    def test_a_table_of_very_many_columns(self):
        """Hits of a few bytes would become rows of a million cells."""
        for fields, expected in ((256, 0), (257, 125)):
            events = b"".join(event([(b"n%d" % (256 * i + j), 0, 8, 16, 0) for j in range(256)]) for i in range(4))
            last = event([(b"n%d" % (j if j < 256 else 4096), 0, 8, 16, 0) for j in range(fields - 256, fields)])
            self.make(entry(SETTINGS, struct.pack("<II", 0, 100)) + events + last + hit(bytes(24)) + entry(TOTALS, b""))
            code, err = self.measure("--format=csv")
            self.assertEqual(code, expected, err)
            self.assertEqual("1,024 at most" in err, expected != 0, err)
            self.assertEqual(self.measure("--format=json")[0], 0)

    def test_packed_hits_of_as_many_rings_as_there_may_be(self):
        """Each has its last hits in memory."""
        begin = entry(SETTINGS, struct.pack("<II", 0, 100)) + event([(b"k", 0, 8, 16, 0)])
        lanes = [(lane, packed([lane] * 12, lane)) for lane in range(1, 65535)]
        self.make(begin, *lanes, entry(TOTALS, b""), version=4)
        self.assertEqual(self.measure("--format=csv"), (0, ""))
        seen = harness.run([harness.tool(), f"--replay={self.file}", "--format=csv"])
        values = [line.rsplit(",", 1)[1] for line in seen.stdout.decode().splitlines()[1:]]
        self.assertEqual(sorted(map(int, values)), sorted(2 * list(range(1, 65535))))

    def test_packed_hits_are_no_descriptions(self):
        begin = entry(SETTINGS, struct.pack("<II", 0, 100)) + event([(b"k", 0, 8, 16, 0)])
        self.make(begin, packed([7], 5), entry(TOTALS, b""), version=4)
        code, err = self.measure()
        self.assertEqual(code, 1)
        self.assertRegex(err, r"the recording is damaged at byte \d+: what is before it has been printed")

    def test_a_description_without_end(self):
        long = [(b"n" * 60000, 0, 8, 16, 0)] * 3
        self.make(entry(SETTINGS, struct.pack("<II", 0, 100)) + event(long) + hit(bytes(24)))
        self.assertEqual(self.measure()[0], 1)

    def test_strings_that_are_named_again_and_again(self):
        """A payload of 128 KiB, whose locators all name the same 60,000 bytes."""
        fields = [(b"s%d" % i, 4, 4, 16 + 256 * i, 64) for i in range(200)]
        fixed = 16 + 256 * 200
        payload = bytes(16) + struct.pack("<I", 60000 << 16 | fixed) * (64 * 200) + b"\x1b" * 60001
        self.assertLess(fixed, 65536)
        self.make(entry(SETTINGS, struct.pack("<II", 1, 65535)) + event(fields, fixed=fixed) + hit(payload) * 20 + entry(TOTALS, b""))
        for name in FORMATS:
            code, err = self.measure(f"--format={name}")
            self.assertEqual((code, err), (0, ""), name)

    def test_a_block_of_names(self):
        """As many names of addresses before a hit as there may be, and one more."""
        for count, expected in ((16384, 0), (16385, 1)):
            names = b"".join(struct.pack("<QQQ", i, 0, 1) + text(b"n") for i in range(count))
            self.make(entry(SETTINGS, struct.pack("<II", 8, 100)) + event([(b"a", 5, 8, 16, 64)], fixed=16 + 512) +
                      (entry(SYMBOLS, names) + hit(bytes(16 + 512))) * 4 + entry(TOTALS, b""))
            self.assertEqual(self.measure()[0], expected)


class Places(Replays):
    def refused(self, *options, answer, code=125, **more):
        seen = harness.run([harness.tool(), f"--replay={self.file}", *options], **more)
        self.assertEqual(seen.returncode, code, seen.stderr)
        self.assertIn(answer, seen.stderr.decode())
        self.assertEqual(seen.stderr.count(b"uprobe-run: "), 1, seen.stderr)

    def test_the_output_is_not_the_recording(self):
        self.good()
        with open(self.file, "rb") as file:
            before = file.read()
        os.symlink(self.file, self.path("link"))
        os.link(self.file, self.path("name"))
        os.symlink(self.folder, self.path("folder"))
        answer = "not written to: it is the file that is read"
        for output in (self.file, self.path("link"), self.path("name"), self.path("folder/recording"), "recording", "./folder/name"):
            with self.subTest(output=output):
                self.refused("-o", output, answer=answer, cwd=self.folder)
        with open(self.file, "ab") as file:
            for output in ("-", "/dev/stdout", "/proc/self/fd/1"):
                with self.subTest(output=output):
                    done = harness.run(["sh", "-c", '"$@" >>recording', "sh", harness.tool(), "--replay=recording", "-o", output],
                                       cwd=self.folder)
                    self.assertEqual(done.returncode, 125, done.stderr)
                    self.assertIn(answer, done.stderr.decode())
        with open(self.file, "rb") as file:
            self.assertEqual(file.read(), before)
        self.assertEqual(harness.run([harness.tool(), "--replay=recording", "-o", "other"], cwd=self.folder).returncode, 0)

    def test_a_file_that_is_no_recording_costs_no_output(self):
        self.write("recording", "text")
        self.write("trace", "the last one")
        self.refused("-o", self.path("trace"), answer="is not a recording of uprobe-run", code=1)
        with open(self.path("trace"), encoding="ascii") as file:
            self.assertEqual(file.read(), "the last one")

    def test_what_is_no_file(self):
        os.mkfifo(self.file)
        self.refused(answer="is a fifo: a recording is a regular file")
        os.unlink(self.file)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.file)
            self.refused(answer="is a socket: a recording is a regular file")
        for self.file, answer in (("/dev/zero", "is a device"), ("/dev/null", "is a device"), (self.folder, "is a directory"),
                                  (self.path("missing"), "No such file or directory")):
            self.refused(answer=answer)

    def test_a_file_that_changes_while_it_is_read(self):
        """Read twice, as csv needs all fields first: another file by then, a shorter one, one with other events."""
        self.good()
        with open(self.file, "rb") as file:
            good = file.read()
        many = recording([entry(SETTINGS, struct.pack("<II", 0, 100)) + event([(b"s", 4, 4, 16, 64)], fixed=16 + 256) * 300 +
                          hit(bytes(16 + 256), 299) * 1000 + entry(TOTALS, b"")])
        is_over = threading.Event()

        def change():
            while not is_over.is_set():
                for data in (good, many, good[:40], b""):
                    with open(self.file, "r+b") as file:
                        file.write(data)
                        file.truncate()
        changer = threading.Thread(target=change)
        changer.start()
        try:
            for turn in range(60):
                seen = harness.run([harness.tool(), f"--replay={self.file}", f"--format={FORMATS[turn % 6]}", "--filter=common_pid >= 0"])
                self.assertIn(seen.returncode, (0, 1, 125), seen.stderr)
        finally:
            is_over.set()
            changer.join()


class Fuzzers(unittest.TestCase):
    def test_every_one_is_run(self):
        with open(os.path.join(harness.Options.source, "scripts/fuzz"), encoding="utf-8") as file:
            words = set(file.read().replace("/", " ").replace("(", " ").replace(")", " ").split())
        folder = os.path.join(harness.Options.source, "tests/fuzz")
        names = {name[:-4] for name in os.listdir(folder) if name.endswith("_fuzz.cpp")}
        self.assertGreater(len(names), 10)
        self.assertEqual(names - words, set())


if __name__ == "__main__":
    harness.main()
