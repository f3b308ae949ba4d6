// SPDX-License-Identifier: MIT
// Threads that a signal finds in a displaced copy, before its instruction. The hit has been recorded. A handler that
// was shown the original address would send the thread there once more, and its changes to the thread (its
// registers, its stack, its code continued in another thread) would make that arrival a new hit. So the agent defers the
// signal, the thread executes the instruction with the trap flag set, and the handler sees it after the instruction:
//
//   signal --> deferred (handler_entry.cpp) --> TF, iretq --> copy: one instruction --> SIGTRAP --> the handler's turn
//
// No system call: iretq sets the flag, the processor traps (SDM vol. 3, 17.3.1.4). No handler runs before the trap, since later
// signals are deferred as well; with handlers that the agent does not know the trap comes when they have returned.
#include "preload/steps.h"

#include "preload/copies.h"
#include "preload/handler_entry.h"
#include "preload/thread.h"

namespace uprobe::agent {
namespace {

// never: a system call may sleep for ever; iret, uiret, software interrupts and instructions that set the fs base, by which the
// agent knows the thread, are rare. pushes, pops: the flags, including the agent's trap flag.
enum class StepKind : u16 { plain, pushes_flags, pops_flags, never };

// Each iteration of a repeated string instruction traps.
constexpr u64 kMostIterations = 256;

bool is_prefix(u8 byte) {
  constexpr u8 kPrefixes[] = {0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3};
  for (const u8 prefix : kPrefixes)
    if (byte == prefix) return true;
  return (byte & 0xf0) == 0x40;  // REX
}

bool is_string(u8 opcode) {
  return (opcode >= 0xa4 && opcode <= 0xa7) || (opcode >= 0xaa && opcode <= 0xaf) || (opcode & 0xfc) == 0x6c;
}

// After 0f (SDM vol. 2, table A-3).
StepKind kind_of_two_bytes(const u8* opcode, bool is_prefixed) {
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

// Of an instruction that can be displaced (arch/x86/code/classify.cpp).
StepKind kind_of(const u8* code, u64 iterations) {
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

// The entry by which the agent will know the trap; null: the thread has none of its own.
shared::ThreadEntry* entry_of(ProcessBlock& block) {
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), true);
  return entry != nullptr && entry->thread > 1 ? entry : nullptr;
}

// Null: no step of this thread is under way.
const shared::ThreadEntry* take_step(ProcessBlock& block) {
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), false);
  if (entry == nullptr || __atomic_load_n(&entry->steps, __ATOMIC_RELAXED) == 0) return nullptr;
  __atomic_fetch_sub(&entry->steps, 1, __ATOMIC_RELAXED);
  return entry;
}

StepKind kind_at(const SignalFrame& frame) { return kind_of(reinterpret_cast<const u8*>(frame.ip), frame.cx); }

}  // namespace

bool can_step(ProcessBlock& block, const SignalFrame& frame) {
  return is_under_way(block, frame.ip) && kind_at(frame) != StepKind::never && can_iretq(frame) &&
         entry_of(block) != nullptr;
}

// If the flag is set already it is the application's, which then gets the trap, or that of an interrupted step.
bool step(ProcessBlock& block, SignalFrame& frame) {
  if (!can_step(block, frame)) return false;
  if ((frame.flags & kTrapFlag) != 0) return true;
  shared::ThreadEntry& entry = *entry_of(block);
  entry.step_kind = static_cast<u16>(kind_at(frame));
  __atomic_fetch_add(&entry.steps, 1, __ATOMIC_RELAXED);
  frame.flags |= kTrapFlag;
  return true;
}

bool end_step(ProcessBlock& block, SignalFrame& frame) {
  const shared::ThreadEntry* entry = take_step(block);
  if (entry == nullptr) return false;
  const auto kind = static_cast<StepKind>(entry->step_kind);
  if (kind != StepKind::pops_flags) frame.flags &= ~kTrapFlag;
  if (kind == StepKind::pushes_flags) *reinterpret_cast<u16*>(frame.sp) &= static_cast<u16>(~kTrapFlag);
  return true;
}

void forget_step(ProcessBlock& block, SignalFrame& frame) {
  if ((frame.flags & kTrapFlag) != 0 && take_step(block) != nullptr) frame.flags &= ~kTrapFlag;
}

}  // namespace uprobe::agent
