// SPDX-License-Identifier: MIT
// Handing signals to the application's handlers. See handler_entry.cpp.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// The action of entry.S after the C++ part of a handler: one of kResume..., or the address of the application's handler,
// which is then entered with `frame`. Returned in two registers.
struct Exit {
  u64 action;
  u64 frame;  // address of a HandlerFrame
};
inline constexpr u64 kResume = 0, kSigreturn = 1, kResumeNested = 2, kSigreturnNested = 3;

// A handler of the application and its sa_flags.
struct AppHandler {
  u64 address;
  u64 flags;
};

// The word that is not 0 while deferred signals wait for this thread to leave the agent. Never null: a thread without an entry
// of its own gets a word that is always 0.
u64 pending_word(ProcessBlock& block);

// The program's signal mask, for signals that the kernel really blocks. The kernel's own mask has more while signals are
// deferred.
u64 blocked_by_program(ProcessBlock& block, const SignalFrame& frame);

// Whether the frame can be left without a system call. Otherwise only rt_sigreturn is right: it restores an alternate stack with
// SS_AUTODISARM, and a shadow stack.
bool can_resume(const SignalFrame& frame);

// Defers a signal whose thread is in the agent, or in a copy before its instruction: the thread goes on where it was (or
// repeats the look at its list that it has just finished) and the handler runs when it leaves. False: the pool is full, it
// cannot be deferred.
bool defer(ProcessBlock& block, const AppHandler& handler, const SignalInfo& info, SignalFrame& frame);
// Defers a signal; `mask` is in force after its handler.
bool defer(ProcessBlock& block, const AppHandler& handler, u64 restorer, u64 mask, const SignalInfo& info);
// An interrupted thread that is about to make a system call, in which it must not sleep now, or has just looked at its list, is
// sent back.
void look_again(SignalFrame& frame);

// A system call of the application that is not made (kNotMade) if a signal has come to this thread since its `attention`
// was cleared.
long interruptible_call(ProcessBlock& block, long number, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f);

// Enters the handler with the kernel's frame, moved to where the kernel would have put it for this handler.
Exit enter(ProcessBlock& block, const AppHandler& handler, SignalFrame& frame);

// Outside of any hit: sends the deferred signals of this thread again. System calls: only at the end of the program.
void send_pending_again(ProcessBlock& block);
// A forked child has only its own thread.
void forget_other_threads(ProcessBlock& block);

}  // namespace uprobe::agent
