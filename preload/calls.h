// The system calls that the agent makes in the application's stead.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// A thread is at a point of role system_call. True: the call has been made, the frame holds its result and goes on behind
// it; or signals wait that have to be handled first, and the frame goes to the point once more. False: the displaced copy
// shall make it.
bool make_call(ProcessBlock& block, const Point& point, SignalFrame& frame);

// A thread comes out of clone, clone3 or vfork, as parent or child.
void leave_clone(ProcessBlock& block, const Point& point, const SignalFrame& frame, bool may_fault);

}  // namespace uprobe::agent
