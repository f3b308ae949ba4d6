// SPDX-License-Identifier: MIT
// Signals that find a thread in front of a displaced instruction. See steps.cpp.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// Whether the interrupted thread is in a copy, in front of its instruction, and can be brought behind it before a handler
// sees it.
bool can_step(ProcessBlock& block, const SignalFrame& frame);
// Makes the thread, if it can be, execute one instruction of the copy and trap: it is to be resumed with this frame at once,
// whatever waits for it.
bool step(ProcessBlock& block, SignalFrame& frame);
// A thread has trapped behind one instruction. False: it was the application that wanted that.
bool end_step(ProcessBlock& block, SignalFrame& frame);
// A handler is about to see this frame: what it says of the trap flag becomes the application's.
void forget_step(ProcessBlock& block, SignalFrame& frame);

}  // namespace uprobe::agent
