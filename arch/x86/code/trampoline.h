// SPDX-License-Identifier: MIT
// Trampolines: the machine code between a probe point's `jmp rel32` and its displaced copy. Bytes in, bytes out; no OS. Two
// parts (engine/shared/trampoline.h): a thunk of the point's own, and a body that many points share.
//
//   probe point:  jmp ---> thunk: skip the red zone, call ---> body: save what is used, record, restore, return
//                          copy, after the thunk        <---        ---> after the point
//
// Recording is done in one of two ways, decided per body:
//   - in the body: one consumer whose event program is made of registers, constants, dereferences, plain memory,
//     and strings ($comm needs a system call). The record is built in place in the CPU's ring, inside an rseq section of the body's own;
//   - by the agent (uprobe_jump_entry, arch/x86/entry/jump.S), which runs the event programs: everything else, and every
//     hit that the body cannot finish: no rseq in this thread, an interrupted section, a load that faults, a string
//     that is long or ends near the end of a page, a point whose consumers have changed since, a word that is not aligned
//     with alignment checks on (AC).
// What stands in the record is the same in both.
//
// Where the stack is switched a body has no rseq section: it claims a ring, as preload/ring_claim.cpp does, and the agent gives
// the ring back for a thread that a signal or a fault takes out of the middle.
//
// Registers, flags and the red zone are as before when the copy is reached; no vector register, no string instruction (DF is
// the application's). Stack: at most 72 bytes below the red zone, and what jump.S uses. The thread may be taken out at any
// instruction by siglongjmp.
//
// A body is bound to its address, to the block, and (if it records) to an event program and the layout of its session's area.
#pragma once

#include <optional>
#include <span>

#include "arch/code/relocate.h"
#include "engine/shared/event_program.h"
#include "engine/shared/filter.h"

namespace uprobe::arch {

// What a body needs to know to record by itself. Addresses are in the target.
struct FastRecord {
  Addr area;  // the session area
  std::uint64_t data_offset = 0, ring_bytes = 0;
  std::uint32_t ring_offset = 0, cpu_ring_count = 0;
  std::uint32_t events_offset = 0;  // of the table of events, from the start of the area
  std::uint32_t counts_offset = 0;  // and of their counts
  std::uint32_t fixed_bytes = 0;    // of an event's payload
  std::uint64_t file_bias = 0;      // of all points that share the body
  bool is_return = false;           // functions return there: slots have an ExitHead
  // The agent's code, where functions return to it by stubs (engine/shared/return_stub.h): a word of it that a record would have
  // is the agent's to look up. 0: they do not.
  Addr agent_text;
  std::uint32_t agent_text_bytes = 0;
  std::span<const shared::Insn> program;
  std::span<const shared::Test> filter = {};             // empty: every hit is recorded
  std::uint32_t dropped_offset = 0, dropped_stride = 0;  // of the counts of what it drops
  bool has_cpu_number = false;                           // arch/abi/processor.h
  std::uint32_t claimed_ring_count = 0;                  // after the CPU rings
  bool is_elsewhere = false;  // kBlockElsewhere: records get the words of the block (engine/shared/task_number.h)
  bool watches_tool = false;  // hits after the tool's death (AreaHeader::tool_life) are the agent's
};

struct BodySpec {
  Addr at;          // a multiple of shared::kBodyUnit
  Addr block;       // ProcessBlock
  Addr jump_entry;  // uprobe_jump_entry
  std::optional<FastRecord> fast;
  bool switches = false;  // for the thunks of a switch
};

struct Body {
  std::vector<std::uint8_t> bytes;
  bool records = false;  // by itself
};

inline constexpr std::uint32_t kBodyEntry = 128;  // offset of the first instruction of a body: what thunks call

// At most shared::kMaxBodyBytes. Never fails for want of a fast way: a program that is not supported, or too long, is left to
// the agent.
Body make_body(const BodySpec& spec);

// The same where addresses take the most bytes: for planning. What it records, the one at any other place does.
Body longest_body(const BodySpec& spec);

// Appends the thunk that stands at `at`. Refused (Code::refused) when the body's entry is out of its reach.
Status append_thunk(std::vector<std::uint8_t>& bytes, Addr at, Addr entry);
// The thunk of a point whose jump leads to a switch.
Status append_switched_thunk(std::vector<std::uint8_t>& bytes, Addr at, Addr entry);
// kSwitchBytes that stand at `at` and lead to that thunk.
std::vector<std::uint8_t> make_switch(Addr at, Addr thunk);

}  // namespace uprobe::arch
