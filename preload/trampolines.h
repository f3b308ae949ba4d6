// SPDX-License-Identifier: MIT
// Threads inside trampolines. See trampolines.cpp.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// The address at which a thread goes on after a load at `ip`, in a trampoline, has faulted; 0: that load may not fault.
u64 trampoline_fixup(const ProcessBlock& block, u64 ip);

// Moves an interrupted thread out of a trampoline, or out of the agent's work for one, and restores the application's
// registers.
// no: it was in none; or in the agent's part, which it has to finish first.
// arriving: nothing is recorded; it is back at the probe point. recorded: it is at the beginning of the copy.
enum class Jump { no, arriving, recorded };
Jump leave_trampoline(const ProcessBlock& block, SignalFrame& frame);
// The same if a handler of the program is to see the place: if that would be the middle of a jump, the hit is recorded now
// (trap.cpp), so that the thread is at the beginning of the copy.
void leave_for_handler(ProcessBlock& block, SignalFrame& frame, bool may_fault);

// Whether an int3 before `ip` is the agent's own, for a thread with deferred signals: leave_trampoline says `recorded`.
bool is_end_of_jump(u64 ip);

}  // namespace uprobe::agent
