// SPDX-License-Identifier: MIT
// Threads that a signal finds in a displaced copy, before its instruction. The hit has been recorded. A handler that
// was shown the original address would send the thread there once more, and its changes to the thread (its
// registers, its stack, its code continued in another thread) would make that arrival a new hit. So the agent defers the
// signal, the thread executes the instruction with the trap flag set, and the handler sees it after the instruction:
//
//   signal --> deferred (handler_entry.cpp) --> trap flag, back --> copy: one instruction --> SIGTRAP --> the handler's turn
//
// No system call: leaving the handler sets the flag, the processor traps (arch/entry/step_kind.h). No handler runs before the trap, since later
// signals are deferred as well; with handlers that the agent does not know the trap comes when they have returned.
#include "preload/steps.h"

#include "arch/entry/step_kind.h"
#include "preload/copies.h"
#include "preload/handler_entry.h"
#include "preload/thread.h"

namespace uprobe::agent {
namespace {

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

}  // namespace

bool can_step(ProcessBlock& block, const SignalFrame& frame) {
  return is_under_way(block, frame.ip) && step_kind(frame) != StepKind::never && can_resume(frame) &&
         entry_of(block) != nullptr;
}

// If the flag is set already it is the application's, which then gets the trap, or that of an interrupted step.
bool step(ProcessBlock& block, SignalFrame& frame) {
  if (!can_step(block, frame)) return false;
  if ((frame.flags & kTrapFlag) != 0) return true;
  shared::ThreadEntry& entry = *entry_of(block);
  entry.step_kind = static_cast<u16>(step_kind(frame));
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
