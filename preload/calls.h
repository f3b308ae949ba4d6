// The system calls that the agent makes in the application's stead.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// A thread is at a point of role system_call. True: the call has been made, the frame holds its result and goes on behind
// it. False: the displaced copy shall make it.
bool make_call(ProcessBlock& block, const Point& point, SignalFrame& frame);

}  // namespace uprobe::agent
