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

// A thread is at a point before a call (is_before_call), or has come from it to the copy. True: as above. False: the copy has to lead
// to it.
bool make_call_after(ProcessBlock& block, const Point& point, SignalFrame& frame);
// The point before a call whose copy begins at an address; null: there is none.
const Point* point_before_call(const ProcessBlock& block, u64 copy);

// A system call, and what a thread that is about to make it has in its registers.
struct SystemCall {
  long number;
  u64 arguments[6];
  u64 sp;
};
// Whether an open that a thread comes to by a jump has to be made by a signal.
bool wants_open(const SystemCall& call);
// A signal that comes from here on keeps `interruptible_call` from making the call. False: one has come before.
bool begin_call(ProcessBlock& block);

// A thread comes out of clone, clone3 or vfork, as parent or child.
void leave_clone(ProcessBlock& block, const Point& point, const SignalFrame& frame);

}  // namespace uprobe::agent
