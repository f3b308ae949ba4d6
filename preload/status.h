// SPDX-License-Identifier: MIT
// What /proc says of the program's own signals. See status.cpp.
#pragma once

#include "arch/x86/entry/signal_frame.h"
#include "preload/agent.h"

namespace uprobe::agent {

// Whether a path can be that of a process's own status, as its first eight bytes have it.
bool may_be_status(u64 path);
// A thread is about to call open or openat. True: it was for the process's own status, and `result` is a descriptor of that
// text with the signals as the application set them. False: the displaced copy shall make the call.
bool open_status(ProcessBlock& block, const SignalFrame& frame, long& result);

}  // namespace uprobe::agent
