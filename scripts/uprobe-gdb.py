# SPDX-License-Identifier: MIT
"""Backtraces through hits of uprobe-run, for gdb:

    gdb -x scripts/uprobe-gdb.py -p PID        (or in gdb: source scripts/uprobe-gdb.py)

A thread that is stopped while a hit is taken stands in code that is in no file: the thunk and the body that record, or the copy
of the displaced instructions. Without this gdb guesses there. With it the thread's frames are the agent's, if it is in there, one
that is called [uprobe hit], and then those of the program, at the probed instruction, with the program's registers. Return stubs
lead on by the agent's own unwind information.

Reads the memory of the process and /proc/PID/maps, changes nothing. Layouts: engine/shared/{process_block,trampoline}.h.
"""
import re
import struct

import gdb
from gdb.FrameDecorator import FrameDecorator
from gdb.unwinder import Unwinder, register_unwinder

BLOCK_MAGIC, ABI_VERSION = 0x316b6c6270727075, 22
BODY_MAGIC = 0x31312d79646f6275
AGENT = re.compile(r"^([0-9a-f]+)-[0-9a-f]+ \S+ 00000000 .* (/.*/libuprobe\.so)$", re.M)

# struct ProcessBlock
POINT_COUNT, POINT_OFFSET, ISLAND_COUNT, ISLANDS = 32, 40, 72, 152
# struct Point
POINT_BYTES, POINT = 56, struct.Struct("<QQQQIIIIBBBB")
# struct SlotHead, TrampolineFrame, BodyHead
SLOT_UNIT, SLOT_HEAD, THUNK_BYTES, THUNK_SKIPS = 16, 16, 10, 5
MOST_IN_SLOT = SLOT_HEAD + THUNK_BYTES + 256
BODY_UNIT, MOST_BODY, BODY = 64, 4096, struct.Struct("<QHHHHH6xH")
SWITCHED_NOP, RESTORE_BYTES = b"\x0f\x1f\x40\x00", 1
RED_ZONE, FULL_DEPTH, SAVED = 128, 192, 12
SAVE_DEPTHS = ((0, 136), (1, 144), (2, 152), (3, 160), (4, 168), (5, 176), (7, 184), (12, 192))
RESTORE_DEPTHS = ((0, 192), (1, 184), (6, 176), (7, 168), (8, 160), (9, 152), (10, 144), (11, 136))
KEPT = ("r8", "rdi", "rsi", "rdx", "rcx", "rax")  # after the flags, in the frame
COPY_IN_FRAME = 56
POP_RAX = 0x58  # after a pushfq: the one place in a body where rsp is lower
# struct ucontext, to whose beginning rsp points where a handler has returned: uc_mcontext.gregs (sys/ucontext.h)
CONTEXT_REGISTERS = 40
IN_CONTEXT = ("r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx", "rsp", "rip")
UNCHANGED = ("rbx", "rbp", "r9", "r10", "r11", "r12", "r13", "r14", "r15") + KEPT


def read(address, length):
    return bytes(gdb.selected_inferior().read_memory(address, length))


def word(address):
    return struct.unpack("<Q", read(address, 8))[0]


def numbers(address, count):
    return struct.unpack(f"<{count}I", read(address, 4 * count))


def depth_at(depths, distance):
    return [depth for at, depth in depths if distance >= at][-1]


class Agent:
    """What is known of the process: where the agent is mapped, and its process block."""

    def __init__(self, pid):
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            found = AGENT.search(file.read())
        if not found:
            raise LookupError(f"no uprobe-run agent in process {pid}")
        self.base, self.path = int(found[1], 16), found[2]
        if not self.known_to_gdb():
            gdb.execute(f'add-symbol-file "{self.path}" -o {self.base:#x}', to_string=True)
        self.slot, self.restorer = (int(gdb.parse_and_eval(f"(unsigned long)&{name}")) for name in ("uprobe_block", "uprobe_restorer"))

    def known_to_gdb(self):
        return any(file.filename and file.filename.endswith("/libuprobe.so") for file in gdb.current_progspace().objfiles())

    def block(self):
        """Address of the process block, 0: there is none (yet), or it is another version's."""
        at = word(self.slot)
        if at == 0 or struct.unpack("<QI", read(at, 12)) != (BLOCK_MAGIC, ABI_VERSION):
            return 0
        return at


class Place:
    """Where a thread stands in the program: its pc, its stack pointer, and the registers that differ from the present ones.

    gdb takes what is not the innermost frame for a caller, and looks one byte before its pc for the function: `pc` is one more
    than the address where the thread goes on.
    """

    def __init__(self, address, sp, registers=None):
        self.pc, self.sp, self.registers = address + 1, sp, registers or {}


def interrupted(context):
    """The place that a signal interrupted. If the signal was one of the agent's breakpoints, the pc is already after it."""
    registers = dict(zip(IN_CONTEXT, struct.unpack("<17Q", read(context + CONTEXT_REGISTERS, 17 * 8))))
    return Place(registers["rip"] - 1, registers["rsp"], registers)


class Islands:
    """Slots and bodies, found as preload/slots.cpp and preload/trampolines.cpp do."""

    def __init__(self, block):
        self.block = block
        count, = numbers(block + ISLAND_COUNT, 1)
        table = read(block + ISLANDS, 16 * count)
        self.parts = [(base, base + used) for base, _, used in struct.iter_unpack("<QII", table)]

    def around(self, pc):
        return next((part for part in self.parts if part[0] <= pc < part[1]), None)

    def point(self, index):
        count, = numbers(self.block + POINT_COUNT, 1)
        if index >= count:
            return None
        offset, = numbers(self.block + POINT_OFFSET, 1)
        return POINT.unpack(read(self.block + offset + POINT_BYTES * index, POINT.size))

    def place(self, pc, sp):
        """None: not ours."""
        part = self.around(pc)
        if part is None:
            return None
        return self.in_slot(part, pc, sp) or self.in_body(part, pc, sp)

    def in_slot(self, part, pc, sp):
        at = pc & -SLOT_UNIT
        while at >= part[0] and pc - at < MOST_IN_SLOT:
            address, index, _ = struct.unpack("<QII", read(at, SLOT_HEAD))
            point = self.point(index)
            if point and point[0] == address and point[1] - at in (SLOT_HEAD, SLOT_HEAD + THUNK_BYTES):
                if pc - point[1] >= point[7]:  # Point::copy, copy_bytes
                    return None
                return self.in_copy(point, pc, sp) if pc >= point[1] else self.in_thunk(point, at, pc, sp)
            at -= SLOT_UNIT
        return None

    @staticmethod
    def in_thunk(point, slot, pc, sp):
        if read(slot + SLOT_HEAD, 4) == SWITCHED_NOP:
            return Place(point[0], word(sp))
        return Place(point[0], sp + (RED_ZONE if pc - slot - SLOT_HEAD >= THUNK_SKIPS else 0))

    @staticmethod
    def in_copy(point, pc, sp):
        marks = read((point[1] + point[7] + 7) & -8, 8 * point[11])
        covering = [mark for mark in struct.iter_unpack("<BBHi", marks) if pc - point[1] >= mark[0]][-1]
        return Place(point[0] + covering[3], sp + covering[1])

    def in_body(self, part, pc, sp):
        at = pc & -BODY_UNIT
        while at >= part[0] and pc - at < MOST_BODY:
            mark, size, code, _, out, slow, claimed = BODY.unpack(read(at, BODY.size))
            if mark == BODY_MAGIC ^ at:
                return self.in_frame(pc, sp, pc - at, code, out, slow, claimed != 0) if code <= pc - at < size else None
            at -= BODY_UNIT
        return None

    def in_frame(self, pc, sp, distance, code, out, slow, is_switched):
        if distance < code + SAVED:
            depth = depth_at(SAVE_DEPTHS, distance - code)
        elif out <= distance < slow:
            depth = depth_at(RESTORE_DEPTHS, distance - out)
        else:
            depth = FULL_DEPTH + (8 if read(pc, 1)[0] == POP_RAX else 0)
        frame = sp + depth - FULL_DEPTH
        copy = word(frame + COPY_IN_FRAME) + (RESTORE_BYTES if is_switched else 0)
        kept = KEPT if distance >= code + SAVED else ()  # before, they are still where they were
        registers = {name: word(frame + 8 + 8 * i) for i, name in enumerate(kept)}
        above = word(frame + COPY_IN_FRAME + 8) if is_switched else frame + FULL_DEPTH
        return Place(word(copy - THUNK_BYTES - SLOT_HEAD), above, registers)


class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


class HitUnwinder(Unwinder):
    def __init__(self):
        super().__init__("uprobe-run")
        self.agents = {}  # by process

    def agent(self):
        """None: the process has none. Looked for once."""
        pid = gdb.selected_inferior().pid
        if pid and pid not in self.agents:
            try:
                self.agents[pid] = Agent(pid)
            except (LookupError, OSError, gdb.error):
                self.agents[pid] = None
        return self.agents.get(pid)

    def __call__(self, pending):
        agent = self.agents.get(gdb.selected_inferior().pid)
        block = agent.block() if agent else 0
        if block == 0:
            return None
        pc, sp = (int(pending.read_register(name)) & (1 << 64) - 1 for name in ("rip", "rsp"))
        try:
            place = interrupted(sp) if pc == agent.restorer else Islands(block).place(pc, sp)
        except gdb.MemoryError:
            return None
        return self.unwind(pending, place) if place else None

    @staticmethod
    def unwind(pending, place):
        pc, sp = pending.read_register("rip").type, pending.read_register("rsp").type
        info = pending.create_unwind_info(FrameId(gdb.Value(place.sp).cast(sp), gdb.Value(place.pc).cast(pc)))
        info.add_saved_register("rip", gdb.Value(place.pc).cast(pc))
        info.add_saved_register("rsp", gdb.Value(place.sp).cast(sp))
        for name in UNCHANGED:
            value = pending.read_register(name)
            if name in place.registers:
                value = gdb.Value(place.registers[name]).cast(value.type)
            info.add_saved_register(name, value)
        return info


class HitFrame(FrameDecorator):
    def function(self):
        return "[uprobe hit]"


class HitFilter:
    """Names the frames that the unwinder has found."""
    name, enabled, priority = "uprobe-run", True, 100

    def __init__(self, unwinder):
        self.unwinder = unwinder
        gdb.frame_filters[self.name] = self

    def filter(self, frames):
        agent = self.unwinder.agents.get(gdb.selected_inferior().pid)
        block = agent.block() if agent else 0
        islands = Islands(block) if block else None
        for frame in frames:
            inner = frame.inferior_frame()
            yield HitFrame(frame) if islands and islands.around(inner.pc()) else frame


UNWINDER = HitUnwinder()
register_unwinder(None, UNWINDER, replace=True)
HitFilter(UNWINDER)


def look(_=None):
    """Whether there is an agent, when gdb has a process: not in the middle of a backtrace."""
    if gdb.selected_inferior().pid:
        UNWINDER.agent()


gdb.events.stop.connect(look)
gdb.events.before_prompt.connect(look)
look()
