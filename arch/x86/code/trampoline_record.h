// SPDX-License-Identifier: MIT
// The part of a body that records by itself. Internal to this folder.
#pragma once

#include "arch/code/assembler.h"
#include "arch/code/trampoline.h"
#include "engine/shared/trampoline.h"

namespace uprobe::arch {

inline constexpr unsigned kFrame = 64 + 128;  // bytes below the interrupted rsp while recording
inline constexpr int kCopyInFrame = 56;       // where the address of the copy is, from rsp

// What jump.S is told of a hit, in esi.
inline constexpr unsigned kFaultedHit = 1, kSwitchedHit = 2;

// The slot's head, from the return address of the thunk's call.
constexpr std::int32_t slot_from_return(const BodySpec& spec) {
  const std::uint32_t restore = spec.switches ? shared::kStackRestoreBytes : 0;
  return static_cast<std::int32_t>(restore) - static_cast<std::int32_t>(shared::kCopyAfterThunk);
}

struct BodyLabels {
  Label descriptor, ones, highs, jump_entry, agent_text;  // literals
  Label slow, faulted, out;
  Label claimed, unclaim;           // of a body on a switched stack
  Label section, section_end;       // of rseq
  std::vector<unsigned> may_fault;  // offsets; all go on at `faulted`
};

// Appends the code that records, or nothing if the program or the area is beyond it. Registers: rax rcx rdx rsi rdi r8 and
// the arithmetic flags are free, the frame is as in trampoline.cpp.
bool record_in_place(const BodySpec& spec, Assembler& a, BodyLabels& labels);
void fill_descriptor(Addr at, Assembler& a, BodyLabels& labels);

}  // namespace uprobe::arch
