// SPDX-License-Identifier: MIT
// System calls that the agent makes in the application's stead.
#pragma once

#include "arch/entry/signal_frame.h"
#include "preload/agent.h"
#include "preload/system_call.h"

namespace uprobe::agent {

// Makes the call of a thread that stands at the instruction of one, unchanged. For calls that do not wait and whose time no
// handler can observe.
inline long pass(const SignalFrame& frame) {
  return system_call(call_number(frame), call_argument(frame, 0), call_argument(frame, 1), call_argument(frame, 2),
                     call_argument(frame, 3), call_argument(frame, 4), call_argument(frame, 5));
}

// A thread is at a point of role system_call. True: either the call is made, the frame holds its result and goes on after it;
// or signals have to be handled first, and the frame goes to the point once more. False: the displaced copy has to make the
// call.
bool make_call(ProcessBlock& block, const Point& point, SignalFrame& frame);

// A thread is at a point of role open_call, or has come from it to the copy. True: the call is made, as above. False: the copy
// has to lead to it.
bool make_open(ProcessBlock& block, const Point& point, SignalFrame& frame);
// Whether a thread that came to such a point by a jump has to come by a signal instead.
bool wants_open(const ProcessBlock& block, const Point& point, const shared::Registers& registers);
// The point of role open_call whose copy begins at an address; null: there is none.
const Point* open_point_with_copy(const ProcessBlock& block, u64 copy);

// A thread comes out of clone, clone3 or vfork, as parent or child.
void leave_clone(ProcessBlock& block, const Point& point, const SignalFrame& frame);

}  // namespace uprobe::agent
