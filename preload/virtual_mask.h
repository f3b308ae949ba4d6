// SPDX-License-Identifier: MIT
// The application's view of its signal dispositions and masks. See virtual_mask.cpp.
#pragma once

#include "engine/shared/agent_header.h"
#include "preload/agent.h"
#include "preload/handler_entry.h"

namespace uprobe::agent {

inline constexpr u64 kSigDfl = 0, kSigIgn = 1;
inline constexpr u64 kSigBlock = 0, kSigUnblock = 1, kSetMask = 2;
// The call was not made, a signal has to be handled first (uprobe_interruptible_call).
inline constexpr long kNotMade = shared::kNotMade;

inline u64 signal_bit(i32 signal) { return u64{1} << (signal - 1); }

// The two system calls, made for the application. Results as the kernel's; app_sigprocmask: or kNotMade.
long app_sigaction(ProcessBlock& block, u64 signal, u64 wanted, u64 old, u64 bytes);
long app_sigprocmask(ProcessBlock& block, u64 how, u64 set, u64 old, u64 bytes);
// rt_sigreturn is about to restore the mask and the stack at `context`.
void app_sigreturn(ProcessBlock& block, u64 context);
// A handler is about to run with this frame: a thread that stands before its rt_sigreturn has not made that call.
void undo_sigreturn(ProcessBlock& block, const SignalFrame& frame);

// The calling thread's virtual mask of kOurSignals.
u64 virtually_blocked(ProcessBlock& block);
// A handler of the application is about to run with this frame: shows it the mask of before, and adds to the virtual mask what
// the kernel would block for it. False, with nothing done, unless its return is known to come by app_sigreturn.
bool show_belief(ProcessBlock& block, i32 signal, SignalFrame& frame, u64 restorer);

// signalfd(descriptor, mask, bytes): remembers which of kOurSignals the program means to read.
void note_signalfd(ProcessBlock& block, u64 mask, u64 bytes);

// The address of a mask that is `mask` without kOurSignals, `clean` or `mask` itself: for waits that take one.
u64 without_our_signals(u64 mask, u64& clean);
// The application's handler of one of kOurSignals, as it is called now (SA_RESETHAND acts).
AppHandler handler_to_call(ProcessBlock& block, i32 signal);
u64 restorer_of(ProcessBlock& block, i32 signal);
u64 mask_of(ProcessBlock& block, i32 signal);  // its sa_mask
// Blocks the sa_mask of one of kOurSignals, as the kernel does for a handler. Nothing to do in most programs.
void block_mask_of(ProcessBlock& block, i32 signal);
// The application has no handler (`handler` is 0 or 1). A synchronous signal kills whatever the disposition is; a signal that
// was sent kills unless it is ignored.
void default_action(const SignalInfo& info, u64 handler);

// Around execve: the next program inherits the application's dispositions and mask, not the kernel's.
void show_mask_to_successor(ProcessBlock& block);
void take_mask_back(ProcessBlock& block);

// For a process that ran without the agent: takes its dispositions as if it set them now, and its thread's mask.
void take_dispositions(ProcessBlock& block);
void take_mask(ProcessBlock& block, u64 blocked);
// The reverse. Deferred signals become pending: all signals are blocked during this.
void give_dispositions(ProcessBlock& block);
u64 give_mask(ProcessBlock& block);

// A child whose handlers the kernel would have cleared (CLONE_CLEAR_SIGHAND): clears all but the agent's.
void clear_handlers(ProcessBlock& block, bool shares_memory);

}  // namespace uprobe::agent
