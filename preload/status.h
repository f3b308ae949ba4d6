// SPDX-License-Identifier: MIT
// The lines of /proc/self/status about the program's signals. See status.cpp.
#pragma once

#include "arch/entry/signal_frame.h"
#include "preload/agent.h"

namespace uprobe::agent {

// Whether a path may be that of a process's own status, by its first eight bytes.
bool may_be_status(u64 path);
// A thread is about to call open or openat. True: for the process's own status, and `result` is a descriptor of that text with
// the signals as the application set them. False: the displaced copy has to make the call.
bool open_status(ProcessBlock& block, const SignalFrame& frame, long& result);

}  // namespace uprobe::agent
