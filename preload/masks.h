// The application's view of its signal dispositions and masks. See masks.cpp.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// The two system calls, made for the application. Results as the kernel's.
long app_sigaction(ProcessBlock& block, u64 signal, u64 wanted, u64 old, u64 bytes);
long app_sigprocmask(ProcessBlock& block, u64 how, u64 set, u64 old, u64 bytes);

// The address of a mask that is `mask` without our signals, `clean` or `mask` itself: for waits that take one.
u64 without_our_signals(u64 mask, u64& clean);
// The application's handler of one of our signals, as it is called now (SA_RESETHAND acts); 0 SIG_DFL, 1 SIG_IGN.
u64 handler_to_call(ProcessBlock& block, i32 signal);

// Around execve: the next program inherits what the application ignores and blocks, not what is so in fact.
void show_mask_to_successor(ProcessBlock& block);
void take_mask_back(ProcessBlock& block);

}  // namespace uprobe::agent
