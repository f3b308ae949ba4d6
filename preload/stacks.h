// SPDX-License-Identifier: MIT
// Where signal frames go: the agent's on its own stacks, the application's where the kernel would put them. See stacks.cpp.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// Gives the calling thread a stack for the agent's handlers, as its alternate signal stack in the kernel, unless the frame of
// its hit shows that it has one. System calls (mmap, sigaltstack): not under a filter. Only while the thread is not on an
// alternate stack: at internal points.
void give_stack(ProcessBlock& block, const SignalFrame& hit);
// A thread begins, as the frame of its hit shows, or has begun with a signal: the stack, mask and signals of an earlier thread
// with the same control block are not its own.
void begin_thread(ProcessBlock& block, const SignalFrame& hit);

// The same for a thread that is stopped anywhere in its program, all signals blocked; it runs on a stack of the tool's.
void take_stack_over(ProcessBlock& block);
// The kernel's alternate stack is again the one that the thread has set itself.
void give_stack_back(ProcessBlock& block, u64 sp);

// New memory for a stack, with a page before it that may not be accessed; 0: there is none. System calls: mmap, munmap.
u64 new_stack(u64 bytes);

// Moves the frame of a handler with these flags (all are entered on the kernel's alternate stack) to where the kernel would
// have put it. Null: it would not fit on the application's alternate stack, for which the kernel kills.
SignalFrame* on_its_stack(ProcessBlock& block, SignalFrame& frame, u64 flags);

// The place for the frame of a handler with these flags that interrupts the one at `below` at its first instruction: `fresh`,
// or the top of the application's alternate stack. Null: it would not fit.
HandlerFrame* place_above(ProcessBlock& block, const HandlerFrame& below, HandlerFrame* fresh, u64 flags);

// Shows uc_stack as the application set it, and takes it back before the kernel reads it. Only for handlers whose return comes
// through an internal point.
void show_stack(ProcessBlock& block, SignalFrame& frame);
void take_stack(ProcessBlock& block, SignalFrame& frame);

// sigaltstack(new, old) with the caller's stack pointer. False: the copy has to make the call.
bool app_sigaltstack(ProcessBlock& block, u64 wanted, u64 old, u64 sp, long& result);

}  // namespace uprobe::agent
