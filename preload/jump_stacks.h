// SPDX-License-Identifier: MIT
// The stacks on which bodies run where the program's own stack may be too small (arch/shared/trampoline_frame.h). See
// jump_stacks.cpp.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// Whether a thread has trapped in a switch, for want of such a stack, at the address before frame.ip. It is at its probe point then,
// and nothing is recorded.
bool leave_switch_trap(const ProcessBlock& block, SignalFrame& frame);
// Gives that thread its stack, so that it can go to the probe point again. False: it can have none. System calls (mmap), not under a
// filter: the first hit of a thread only.
bool give_jump_stack(ProcessBlock& block);
// A handler of the program runs above the agent's work for a hit, which has not ended: the next hits of the thread must not use
// the same stack.
void take_jump_stack(ProcessBlock& block, const SignalFrame& frame);

}  // namespace uprobe::agent
