// SPDX-License-Identifier: MIT
// Where handlers of the application return to. See returns.cpp.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// Whether handlers with this restorer come back through the agent (app_sigreturn).
bool returns_through_us(const ProcessBlock& block, u64 restorer);
// Whether handlers with this restorer can be given the visible one of ours.
bool can_lead_back(const ProcessBlock& block, u64 restorer);
// A handler is about to run with this frame, which has the mask of the interrupted thread as the kernel has it.
void lead_back(ProcessBlock& block, HandlerFrame& whole);

// A handler that returns through us begins with this frame: it sees a thread that its signal has found at the visible restorer
// at the application's own.
void show_own_restorer(SignalFrame& frame);

// Whether a thread stands at the visible restorer: its handler has come back.
bool has_come_back(u64 address);
// Such a thread, faulted: moves it to the `syscall` there, as a point of role system_call. The point is in no table.
Point begin_return(SignalFrame& frame);
// Moves a thread that is about to make that call back to the visible restorer; false: it is not there.
bool leave_return_copy(SignalFrame& frame);

}  // namespace uprobe::agent
