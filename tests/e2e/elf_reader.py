# SPDX-License-Identifier: MIT
"""A small ELF64 reader: turns PATH:SYMBOL+OFF into the file offset that the kernel's interface needs.

It shares nothing with the engine's own reader, so that a mistake there cannot hide here.
"""
import re
import struct
import subprocess

PT_LOAD = 1
SHT_SYMTAB, SHT_DYNSYM, SHT_GNU_VERSYM = 2, 11, 0x6fffffff
OLD_VERSION = 0x8000  # of a name that is there for old programs, beside the one that new ones get
E_SHOFF, E_SHENTSIZE = 40, 58  # places of e_shoff and of e_shentsize, e_shnum in the file header


class Elf:
    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            self.data = file.read()
        if self.data[:5] != b"\x7fELF\x02":
            raise ValueError(f"{path}: not an ELF64 file")
        self.segments = self._read_segments()
        self.symbols = self._read_symbols()

    def _read_segments(self):
        """(file offset, address, bytes in the file, flags) of each PT_LOAD."""
        table, = struct.unpack_from("<Q", self.data, 32)
        size, count = struct.unpack_from("<HH", self.data, 54)
        segments = []
        for index in range(count):
            kind, flags, offset, address, _, in_file = struct.unpack_from("<IIQQQQ", self.data, table + index * size)
            if kind == PT_LOAD:
                segments.append((offset, address, in_file, flags))
        return segments

    def _sections(self):
        table, = struct.unpack_from("<Q", self.data, E_SHOFF)
        size, count = struct.unpack_from("<HH", self.data, E_SHENTSIZE)
        if table == 0:
            return []
        return [struct.unpack_from("<IIQQQQIIQQ", self.data, table + index * size) for index in range(count)]

    def _read_symbols(self):
        """name -> address, the default version's; .symtab wins over .dynsym."""
        symbols = {}
        sections = self._sections()
        versions = next((section[4] for section in sections if section[1] == SHT_GNU_VERSYM), None)
        for wanted in (SHT_DYNSYM, SHT_SYMTAB):
            for section in sections:
                if section[1] != wanted:
                    continue
                strings = sections[section[6]]
                for number, at in enumerate(range(section[4], section[4] + section[5], 24)):
                    name, _, _, index, address, _ = struct.unpack_from("<IBBHQQ", self.data, at)
                    if index == 0 or name == 0:
                        continue
                    begin = strings[4] + name
                    end = self.data.index(b"\0", begin)
                    known = self.data[begin:end].decode("latin-1")
                    versioned = versions is not None and wanted == SHT_DYNSYM
                    version, = struct.unpack_from("<H", self.data, versions + 2 * number) if versioned else (0,)
                    if known not in symbols or not version & OLD_VERSION:
                        symbols[known] = address
        return symbols

    def offset_of_address(self, address):
        for offset, start, in_file, _ in self.segments:
            if start <= address < start + in_file:
                return offset + address - start
        raise ValueError(f"{self.path}: address {address:#x} is not in the file")

    def offset_of(self, symbol):
        if symbol not in self.symbols:
            raise ValueError(f"{self.path}: no symbol {symbol}")
        return self.offset_of_address(self.symbols[symbol])

    def named_by_debug_file(self, symbol, size):
        """The offset of a function that only the debug file by this file's build id names; its size tells functions of one name apart."""
        notes = subprocess.run(["readelf", "-n", self.path], capture_output=True, text=True, check=True).stdout
        number = re.search(r"Build ID: (\w+)", notes)[1]
        listing = subprocess.run(["nm", "-S", f"/usr/lib/debug/.build-id/{number[:2]}/{number[2:]}.debug"],
                                 capture_output=True, text=True, check=True).stdout
        places = {int(place, 16) for place, bytes_, name in re.findall(r"(?m)^(\w+) (\w+) \w (\S+)$", listing)
                  if name == symbol and int(bytes_, 16) == size}
        if len(places) != 1:
            raise ValueError(f"{self.path}: {len(places)} functions {symbol} of {size} bytes in its debug file")
        return self.offset_of_address(places.pop())
