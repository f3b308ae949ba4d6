// SPDX-License-Identifier: MIT
// What the trap flag does at one instruction: the processor traps after the one that follows iretq (SDM vol. 3, 17.3.1.4).
#pragma once

#include "arch/entry/signal_frame.h"

namespace uprobe::agent {

// never: a system call may sleep for ever; iret, uiret, software interrupts and instructions that set the fs base, by which the
// agent knows the thread, are rare. pushes, pops: the flags, including the agent's trap flag.
enum class StepKind : u16 { plain, pushes_flags, pops_flags, never };

// Each iteration of a repeated string instruction traps.
inline constexpr u64 kMostIterations = 256;

inline bool is_prefix(u8 byte) {
  constexpr u8 kPrefixes[] = {0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3};
  for (const u8 prefix : kPrefixes)
    if (byte == prefix) return true;
  return (byte & 0xf0) == 0x40;  // REX
}

inline bool is_string(u8 opcode) {
  return (opcode >= 0xa4 && opcode <= 0xa7) || (opcode >= 0xaa && opcode <= 0xaf) || (opcode & 0xfc) == 0x6c;
}

// After 0f (SDM vol. 2, table A-3).
inline StepKind kind_of_two_bytes(const u8* opcode, bool is_prefixed) {
  switch (opcode[0]) {
    case 0x05:  // syscall
    case 0xa1:  // pop %fs
    case 0xb4:  // lfs
    case 0xa6:  // PadLock, repeated
    case 0xa7:
      return StepKind::never;
    case 0x01:  // uiret, mwaitx
      return opcode[1] == 0xec || opcode[1] == 0xfb ? StepKind::never : StepKind::plain;
    case 0xae:  // wrfsbase, umwait, tpause
      return is_prefixed && opcode[1] >= 0xc0 ? StepKind::never : StepKind::plain;
    default:
      return StepKind::plain;
  }
}

// Of an instruction that can be displaced (arch/code/classify.cpp).
inline StepKind kind_of(const u8* code, u64 iterations) {
  bool is_repeated = false, is_prefixed = false;
  for (; is_prefix(*code); ++code) {
    is_repeated |= *code == 0xf2 || *code == 0xf3;
    is_prefixed |= is_repeated || *code == 0x66;
  }
  switch (*code) {
    case 0x0f:
      return kind_of_two_bytes(code + 1, is_prefixed);
    case 0x9c:
      return StepKind::pushes_flags;
    case 0x9d:
      return StepKind::pops_flags;
    case 0x8e:  // mov to a segment register
    case 0xcd:  // int
    case 0xcf:  // iret
      return StepKind::never;
    default:
      return is_repeated && is_string(*code) && iterations > kMostIterations ? StepKind::never : StepKind::plain;
  }
}

// Of the instruction that the thread stands at.
inline StepKind step_kind(const SignalFrame& frame) { return kind_of(reinterpret_cast<const u8*>(frame.ip), frame.cx); }

// Whether the code, one whole instruction, takes the flags from the stack; and how many bytes of them, 0: it does not.
inline u32 popped_flags(const u8* code, u32 bytes) {
  constexpr u8 kPopf = 0x9d, kOperandSize = 0x66;
  const bool is_word = bytes == 2 && code[0] == kOperandSize;
  if (code[bytes - 1] != kPopf || (bytes != 1 && !is_word)) return 0;
  return is_word ? 2 : 8;
}
// As that instruction does it with `value`.
inline void pop_flags(SignalFrame& frame, u64 value, u32 bytes) {
  constexpr u64 kUsers = 0x244dd5;  // what popf changes at CPL 3 (SDM vol. 2, POPF)
  const u64 changed = bytes == 2 ? kUsers & 0xffff : kUsers;
  frame.flags = (frame.flags & ~changed) | (value & changed);
  frame.sp += bytes;
}

}  // namespace uprobe::agent
