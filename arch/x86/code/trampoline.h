// Trampolines: the machine code between a probe point's `jmp rel32` and its displaced copy. Bytes in, bytes out; no OS.
//
//   probe point:  jmp ---> trampoline: skip the red zone, save what is used, record, restore ---> copy ---> behind the point
//
// Recording is done in one of two ways, decided per point:
//   - in the trampoline: one consumer whose event program is made of registers, constants, dereferences, plain memory,
//     and strings ($comm needs a system call). The record is built in place in the CPU's ring, inside an rseq section of the trampoline's own;
//   - by the agent (uprobe_jump_entry, arch/x86/entry/jump.S), which runs the event programs: everything else, and every
//     hit that the trampoline cannot finish: no rseq in this thread, an interrupted section, a load that faults, a string
//     that is long or ends near the end of a page, a point whose consumers have changed since, a word that is not aligned
//     with alignment checks on (AC).
// What stands in the record is the same in both.
//
// Registers, flags and the red zone are as before when the copy is reached; no vector register, no string instruction (DF is
// the application's). Stack: at most 64 bytes below the red zone, and what jump.S uses. The thread may be taken out at any
// instruction by siglongjmp.
//
// A trampoline is bound to its address, to its point and block, and (if it records) to the layout of its session's area.
#pragma once

#include <optional>
#include <span>

#include "arch/x86/code/relocate.h"
#include "engine/shared/event_program.h"

namespace uprobe::x86 {

// What a trampoline needs to know to record by itself. Addresses are in the target.
struct FastRecord {
  Addr area;  // the session area
  std::uint64_t data_offset = 0, ring_bytes = 0;
  std::uint32_t ring_offset = 0, cpu_ring_count = 0;
  std::uint32_t event_offset = 0;  // of the struct Event, from the start of the area
  std::uint32_t fixed_bytes = 0;   // of the event's payload
  std::uint16_t type = 0;
  std::span<const shared::Insn> program;
  std::uint32_t consumer = 0;  // what Point::consumer is while this is the point's only consumer
};

struct TrampolineSpec {
  Addr at;  // of the trampoline, a multiple of shared::kTrampolineUnit
  Addr probe, copy;
  Addr block, point;  // ProcessBlock, and the Point in it
  Addr jump_entry;    // uprobe_jump_entry
  std::uint64_t file_bias = 0;
  std::optional<FastRecord> fast;
};

// From `offset` (of the trampoline) on, rsp is `depth` bytes lower than it was at the probe point.
struct StackMark {
  std::uint16_t offset = 0, depth = 0;
};

struct Trampoline {
  std::vector<std::uint8_t> bytes;
  std::uint32_t entry = 0;  // offset of the first instruction: where the probe point jumps
  bool records = false;     // by itself
  std::vector<StackMark> stack;
};

// At most shared::kMaxTrampolineBytes. Never fails for want of a fast way: a program that is not supported, or too long, is
// left to the agent. Refused (Code::refused) when the
// copy is out of reach of `at`.
Result<Trampoline> make_trampoline(const TrampolineSpec& spec);

// Most bytes that a trampoline of this spec can have, whatever the addresses are: for planning.
std::size_t trampoline_bytes(const TrampolineSpec& spec);

}  // namespace uprobe::x86
