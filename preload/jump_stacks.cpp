// SPDX-License-Identifier: MIT
// A thread finds its stack by a word at its fs base, which is 0 until it has one. The entry of the thread keeps the stack: a later
// thread with the same fs base, whose word is 0 again, gets the same one. So there are never more stacks than entries, and no two
// threads that run have the same.
#include "preload/jump_stacks.h"

#include "preload/copies.h"
#include "preload/slots.h"
#include "preload/stacks.h"
#include "preload/system_call.h"
#include "preload/thread.h"
#include "preload/trampolines.h"

namespace uprobe::agent {
namespace {

constexpr u64 kStackBytes = 64 * 1024;  // of which threads touch a page, or two where the agent records
constexpr u64 kTop = 64;                // the word and the frame have a cache line each

// 0: it cannot have one.
u64 stack_for(ProcessBlock& block, shared::ThreadEntry& entry) {
  if (entry.jump_stack != 0 || (block.flags & shared::kBlockFiltered) != 0) return entry.jump_stack;
  const u64 stack = new_stack(kStackBytes);
  if (stack != 0) entry.jump_stack = stack + kStackBytes - kTop;
  return entry.jump_stack;
}

}  // namespace

bool leave_switch_trap(const ProcessBlock& block, SignalFrame& frame) {
  const u64 trap = frame.ip - shared::kBreakpointBytes, begin = switch_around(block, trap);
  if (begin == 0 || trap != begin + shared::kSwitchTrap) return false;
  frame.ip = trap;
  return leave_trampoline(block, frame) == Jump::arriving;
}

// A program that has another use for the word keeps it.
bool give_jump_stack(ProcessBlock& block) {
  const u64 thread = thread_pointer();
  u64 word = 0;
  shared::ThreadEntry* entry = thread > 1 ? thread_entry(block, thread, true) : nullptr;
  if (entry == nullptr || !uprobe_peek8(thread + shared::kStackWord, &word) || word != 0) return false;
  const u64 stack = stack_for(block, *entry);
  return stack != 0 && (stack & shared::kJumpStackTaken) == 0 && uprobe_poke8(thread + shared::kStackWord, stack);
}

void take_jump_stack(ProcessBlock& block, const SignalFrame& frame) {
  if (!in_agent(block, frame.ip)) return;
  const u64 thread = thread_pointer();
  shared::ThreadEntry* entry = thread_entry(block, thread, false);
  if (entry == nullptr || entry->jump_stack == 0) return;
  entry->jump_stack |= shared::kJumpStackTaken;
  uprobe_poke8(thread + shared::kStackWord, 0);
}

}  // namespace uprobe::agent
