// SPDX-License-Identifier: MIT
// Where signal frames go: our own on a stack of ours, the application's where the kernel would have put them. See stacks.cpp.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// Gives the calling thread a stack for our handlers, as its alternate signal stack in the kernel, unless it has one as the
// frame of its hit says. System calls (mmap, sigaltstack): not under a filter. Only where the thread is not on an alternate
// stack: at points of our own.
void give_stack(ProcessBlock& block, const SignalFrame& hit);
// A thread begins, as the frame of its hit says, or has begun with a signal: whoever had its control block before has left no
// stack, mask or signal to it.
void begin_thread(ProcessBlock& block, const SignalFrame& hit);

// The same for a thread that is stopped anywhere in its program, all signals held back; it runs on a stack of the tool's.
void take_stack_over(ProcessBlock& block);
// Its alternate stack in the kernel is what it has set itself.
void give_stack_back(ProcessBlock& block, u64 sp);

// The frame of a handler with these flags (all are entered on the kernel's alternate stack), moved to where the kernel would
// have put it. Null: it would not fit
// on the application's alternate stack, for which the kernel kills.
SignalFrame* on_its_stack(ProcessBlock& block, SignalFrame& frame, u64 flags);

// Where the frame of a handler with these flags goes that interrupts the one at `below` at its first instruction: `fresh`, or
// the top of the application's alternate stack. Null: it would not fit.
HandlerFrame* place_above(ProcessBlock& block, const HandlerFrame& below, HandlerFrame* fresh, u64 flags);

// uc_stack as the application set it, and back before the kernel reads it. Only for handlers that return through a point of
// ours.
void show_stack(ProcessBlock& block, SignalFrame& frame);
void take_stack(ProcessBlock& block, SignalFrame& frame);

// sigaltstack(new, old) with the caller's stack pointer. False: the copy shall make the call.
bool app_sigaltstack(ProcessBlock& block, u64 wanted, u64 old, u64 sp, long& result);

}  // namespace uprobe::agent
