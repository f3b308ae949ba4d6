// SPDX-License-Identifier: MIT
// Handing signals to the application's handlers. See handler_entry.cpp.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// What entry.S does after the C++ part of a handler: one of kResume..., or the address of the application's handler,
// which is then entered with `frame`. Returned in rax and rdx.
struct Exit {
  u64 action;
  u64 frame;  // address of a HandlerFrame
};
inline constexpr u64 kResume = 0, kSigreturn = 1, kResumeNested = 2, kSigreturnNested = 3;

// A handler of the application, with what it asked for.
struct AppHandler {
  u64 address;
  u64 flags;
};

// The word whose value is not 0 while signals wait for this thread to leave the agent. Never null: a thread that cannot
// be told apart gets one that is always 0.
u64 pending_word(ProcessBlock& block);

// What the program has blocked of the signals that it can block in fact. The kernel's mask has more while signals wait.
u64 blocked_by_program(ProcessBlock& block, const SignalFrame& frame);

// Whether the frame can be left by iretq. Otherwise only rt_sigreturn is right: it puts an alternate stack with SS_AUTODISARM
// back, and a shadow stack.
bool can_iretq(const SignalFrame& frame);

// The interrupted thread is in the agent, or in a copy in front of its instruction: the signal waits until it has left, the
// thread goes on where it was (or at the look at the list that it had just done). False: it cannot wait here, no place is left.
bool defer(ProcessBlock& block, const AppHandler& handler, const SignalInfo& info, SignalFrame& frame);
// Lets a signal wait that is to be delivered when the thread leaves; `mask` is in force after its handler.
bool defer(ProcessBlock& block, const AppHandler& handler, u64 restorer, u64 mask, const SignalInfo& info);
// An interrupted thread is about to make a system call that it must not sleep in, or has just looked at its list: it is sent
// back.
void look_again(SignalFrame& frame);

// A system call of the application that is not made (kNotMade) when a signal has come to this thread since its `attention`
// was cleared.
long interruptible_call(ProcessBlock& block, long number, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f);

// Enters the handler with the frame that the kernel has built, moved to where the kernel would have put it for this handler.
Exit enter(ProcessBlock& block, const AppHandler& handler, SignalFrame& frame);

// Outside of any hit: the handlers of signals that wait for this thread run. System calls: only at the end of the program.
void send_pending_again(ProcessBlock& block);
// A forked child has no thread but its own.
void forget_other_threads(ProcessBlock& block);

}  // namespace uprobe::agent
