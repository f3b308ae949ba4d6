// SPDX-License-Identifier: MIT
// The returns of the application's handlers. See returns.cpp.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// Whether handlers with this restorer come back through the agent (app_sigreturn).
bool returns_through_us(const ProcessBlock& block, u64 restorer);
// Whether handlers with this restorer can be given the agent's visible one.
bool can_lead_back(const ProcessBlock& block, u64 restorer);
// Whether the agent sees the return of a handler with this restorer, in one of these ways.
bool sees_return(const ProcessBlock& block, u64 restorer);
// A handler is about to run with this frame, which holds the kernel's mask of the interrupted thread.
void lead_back(ProcessBlock& block, HandlerFrame& whole);

// A handler that returns through the agent begins with this frame: if its signal has found the thread at the visible restorer,
// the frame shows the application's own restorer.
void show_own_restorer(SignalFrame& frame);

// Whether a thread stands at the visible restorer: its handler has returned.
bool has_come_back(u64 address);
// Moves such a thread, after its fault, to the `syscall` there, as a point of role system_call that is in no table.
Point begin_return(SignalFrame& frame);
// Moves a thread that is about to make that call back to the visible restorer; false: it is not there.
bool leave_return_copy(SignalFrame& frame);

}  // namespace uprobe::agent
