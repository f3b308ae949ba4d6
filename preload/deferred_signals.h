// SPDX-License-Identifier: MIT
// SIGTRAP, SIGSEGV and SIGBUS that are sent while the application's virtual mask blocks them. See deferred_signals.cpp.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// Keeps a signal until it may arrive. False: the table is full, it has to arrive now.
bool hold(ProcessBlock& block, const SignalInfo& info);

// Whether a signal only tells this thread to take a deferred signal of the same number, of the process.
bool is_nudge(const ProcessBlock& block, const SignalInfo& info);

// The calling thread's deferred signals, as bits of a sigset.
u64 deferred_signals(const ProcessBlock& block);

// A forked child has no pending signals.
void forget_deferred(ProcessBlock& block);

// Makes the deferred signals of this thread, 0: of the process, pending in the kernel. Only while all signals are blocked.
void send_deferred(ProcessBlock& block, u64 thread);

// Takes the one with the lowest number out of `set`; false: there is none.
bool take_deferred(ProcessBlock& block, u64 set, SignalInfo& info);

// Delivers deferred signals that the virtual mask (`blocked`) no longer blocks: the handler runs when the thread leaves the
// agent, and `mask` is in force after it. True if a handler will run. System calls: only right after one of the application's
// own that changes its mask.
bool release_deferred(ProcessBlock& block, u64 blocked, u64 mask);

}  // namespace uprobe::agent
