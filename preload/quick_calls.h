// SPDX-License-Identifier: MIT
// Calls that the agent makes for a thread that comes by a jump, before the call (PointRole::quick_call). See quick_calls.cpp.
#pragma once

#include "preload/agent.h"
#include "preload/calls.h"

namespace uprobe::agent {

// rt_sigaction, rt_sigprocmask, mmap, mprotect and pkey_mprotect.
bool is_quick(long number);

// True: the call is made, with its result. False: nothing is done, and the thread has to come by a signal.
bool make_at_once(ProcessBlock& block, const SystemCall& call, long& result);

}  // namespace uprobe::agent
