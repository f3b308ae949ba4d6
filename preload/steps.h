// SPDX-License-Identifier: MIT
// Signals that find a thread before a displaced instruction. See steps.cpp.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// Whether the interrupted thread is in a copy, before its instruction, and can execute that before a handler runs.
bool can_step(ProcessBlock& block, const SignalFrame& frame);
// Makes the thread, if it can, execute one instruction of the copy and trap: it has to be resumed with this frame at once,
// whatever signals are deferred.
bool step(ProcessBlock& block, SignalFrame& frame);
// A thread has trapped after one instruction. False: the application wanted that trap.
bool end_step(ProcessBlock& block, SignalFrame& frame);
// A handler is about to see this frame: the trap flag in it becomes the application's.
void forget_step(ProcessBlock& block, SignalFrame& frame);

}  // namespace uprobe::agent
