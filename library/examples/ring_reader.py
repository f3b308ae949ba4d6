#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints the hits of a session that was started with --export-rings=PATH: ring_reader.py PATH. The layout is uprobe/ring.h's."""
import mmap
import os
import re
import select
import socket
import struct
import sys

VERSION, MAGIC = 1, 0x676E7275
GREETING, WAKE_AT, SESSION, PART, EVENT, FILLED, END, REFUSED = 1, 2, 16, 17, 18, 19, 20, 21
HEAD, RECORD, PAYLOAD, TASK_NAME = struct.Struct("=II"), struct.Struct("=IIQIHH"), struct.Struct("=HBBiQ"), 32
GEOMETRY = struct.Struct("=IIIIQQQQQQQQ")  # of struct uprobe_ring_session, after its head
RING_BYTES, MOST_MESSAGE = 256, 8192


def pass_of(connection):
    """The name of a memory file that the tool holds: the kernel shows it to processes that may inspect the tool."""
    pid, user, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if user != os.geteuid():
        raise PermissionError("the tool is another user's")
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found = re.match(r"/memfd:uprobe-pass:(\w{32})", os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            continue
        if found:
            return found[1].encode()
    raise PermissionError("the tool has no pass")


class Ring:
    """One ring of a part; see uprobe_ring_take() in uprobe/ring.h for the rule by which a copy is valid."""

    def __init__(self, words, data, index, session):
        self.words, self.data, self.size = words, data, session["ring_bytes"]
        self.commit_word = (session["rings_offset"] + RING_BYTES * index) // 8
        self.begin = session["data_offset"] + self.size * index
        self.most, self.reach = session["record_most"], (self.size - session["record_most"]) // 8
        self.position = self.number = self.lost = 0

    def commit(self):
        """Position and number of the next record, and whether no writer has come around to what is not read yet."""
        tail = self.words[self.commit_word + 16] & 0xFFFFFFFF
        word = self.words[self.commit_word]  # one load of 8 bytes
        position = word >> 32
        behind = (position - self.position) & 0xFFFFFFFF
        is_valid = behind <= self.reach or behind <= min(self.size // 8, (position - tail) & 0xFFFFFFFF)
        return position, word & 0xFFFFFFFF, is_valid

    def rejoin(self, position, number, _):
        self.lost += (number - self.number) & 0xFFFFFFFF
        self.position, self.number = position, number
        return b""

    def copy(self):
        """The bytes of what is there; they may have to be dropped afterwards."""
        now = self.commit()
        behind = (now[0] - self.position) & 0xFFFFFFFF
        if not now[2] or (behind == 0 and now[1] != self.number):
            return self.rejoin(*now)
        at = self.position * 8 % self.size
        first = min(behind * 8, self.size - at)
        copied = self.data[self.begin + at:self.begin + at + first] + self.data[self.begin:self.begin + behind * 8 - first]
        now = self.commit()
        return copied if now[2] else self.rejoin(*now)

    def take(self):
        """(record's head, payload) of each record that is there."""
        copied, at = self.copy(), 0
        while at < len(copied):
            if len(copied) - at < RECORD.size + PAYLOAD.size:
                return self.rejoin(*self.commit())
            head = length, number, _, payload_bytes, _, _ = RECORD.unpack_from(copied, at)
            if (length % 8 or not RECORD.size + PAYLOAD.size <= length <= min(self.most, len(copied) - at) or
                    number != self.number or not PAYLOAD.size <= payload_bytes <= length - RECORD.size):
                return self.rejoin(*self.commit())  # the ring makes no sense
            self.position, self.number = (self.position + length // 8) & 0xFFFFFFFF, (self.number + 1) & 0xFFFFFFFF
            yield head, copied[at + RECORD.size:at + RECORD.size + payload_bytes]
            at += length


class Session:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)
        self.geometry, self.rings, self.formats = None, [], {}
        self.send(GREETING, struct.pack("=II", MAGIC, VERSION) + pass_of(self.socket))

    def send(self, kind, data):
        self.socket.send(HEAD.pack(kind, HEAD.size + len(data)) + data)

    def wake_at(self, fill):
        try:
            self.send(WAKE_AT, struct.pack("=II", fill, 0))
        except BrokenPipeError:
            pass  # what the tool has said before its end is still to be heard

    def hear(self):
        """Waits for the next message; returns its kind. A connection that ends is an end."""
        try:
            message, files, _, _ = socket.recv_fds(self.socket, MOST_MESSAGE, 1)
        except ConnectionError:
            message, files = b"", []
        if len(message) < HEAD.size:
            return END
        kind, rest = HEAD.unpack_from(message)[0], message[HEAD.size:]
        if kind == SESSION:
            names = ("version ring_count cpu_ring_count record_most ring_bytes file_bytes counts_offset rings_offset "
                     "data_offset tsc ns tick_rate")
            self.geometry = dict(zip(names.split(), GEOMETRY.unpack(rest)))
        elif kind == PART:
            self.add_part(files[0])
        elif kind == EVENT:
            number = struct.unpack_from("=I", rest)[0]
            self.formats[number] = self.formats.get(number, "") + rest[16:].decode()
        elif kind == REFUSED:
            raise PermissionError(rest.decode())
        return kind

    def add_part(self, file):
        memory = mmap.mmap(file, self.geometry["file_bytes"], mmap.MAP_SHARED, mmap.PROT_READ)
        os.close(file)
        words = memoryview(memory)[:self.geometry["data_offset"]].cast("Q")
        self.rings += [Ring(words, memory, index, self.geometry) for index in range(self.geometry["ring_count"])]

    def records(self):
        for ring in self.rings:
            yield from ring.take()

    def time_of(self, tsc):
        """Seconds of CLOCK_MONOTONIC."""
        return (self.geometry["ns"] + ((tsc - self.geometry["tsc"]) * self.geometry["tick_rate"] >> 32)) / 1e9


def numbers_of(text, payload):
    """The event's fields that are numbers, by its format."""
    fields = re.findall(r"field:([^;]*?)\b(\w+);\s*offset:(\d+);\s*size:([1248]);\s*signed:([01]);", text)
    return {name: int.from_bytes(payload[int(at):int(at) + int(size)], "little", signed=signed == "1")
            for declared, name, at, size, signed in fields if "__data_loc" not in declared and not name.startswith("common_")}


def main(path):
    session, kind, is_asked, hits, names = Session(path), 0, False, 0, 0
    while kind != END:
        if session.rings and not is_asked:
            session.wake_at(1)
            is_asked = True
        if select.select([session.socket], [], [], 0.05)[0]:
            kind = session.hear()
            is_asked = is_asked and kind != FILLED
        for head, payload in session.records():
            event, _, _, thread, _ = PAYLOAD.unpack_from(payload)
            if head[5] & TASK_NAME:
                names += 1
                continue
            hits += 1
            text = session.formats.get(event, "")
            name = re.match(r"name: (.*)", text)
            values = " ".join(f"{field}={value:#x}" for field, value in numbers_of(text, payload).items())
            print(f"{session.time_of(head[2]):.6f} {thread} {name[1] if name else event} {values}")
    print(f"hits {hits} names {names} lost {sum(ring.lost for ring in session.rings)}")


if __name__ == "__main__":
    main(sys.argv[1])
