// SPDX-License-Identifier: MIT
// SIGTRAP, SIGSEGV and SIGBUS that somebody has sent while the application believes them blocked. See deferred_signals.cpp.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// Keeps a signal until it may arrive. False: no place, it has to arrive now.
bool hold(ProcessBlock& block, const SignalInfo& info);

// Whether a signal only says that one of its number is held for the process and may arrive in this thread.
bool is_nudge(const ProcessBlock& block, const SignalInfo& info);

// What is held for the calling thread, as bits of a sigset.
u64 deferred_signals(const ProcessBlock& block);

// A forked child has no pending signals.
void forget_deferred(ProcessBlock& block);

// What is held for this thread, 0: for the process, becomes pending in the kernel. Only while all signals are blocked.
void send_deferred(ProcessBlock& block, u64 thread);

// Takes the one with the lowest number out of `set`; false: there is none.
bool take_deferred(ProcessBlock& block, u64 set, SignalInfo& info);

// What the application does not believe blocked any more (`blocked`) arrives: its handler runs when the thread leaves the
// agent, and `mask` is in force after it. True when a handler will run. System calls: right after one of the application's
// own that changes its mask.
bool release_deferred(ProcessBlock& block, u64 blocked, u64 mask);

}  // namespace uprobe::agent
