// SPDX-License-Identifier: MIT
// Code that comes into the process by mmap and mprotect, and code that is gone. See mappings.cpp.
#pragma once

#include "arch/x86/entry/signal_frame.h"
#include "preload/agent.h"

namespace uprobe::agent {

// The thread is about to call mmap; mprotect or pkey_mprotect. True: the call has been made, `result` is what the kernel
// returned, and code that it made executable is probed. False: the displaced copy shall make it.
bool map_pages(ProcessBlock& block, const SignalFrame& frame, long& result);
bool protect_pages(ProcessBlock& block, const SignalFrame& frame, long& result);

// A breakpoint was executed at a point. Whose code stands there: the point's; somebody else's, breakpoint included; or the
// program's own, changed meanwhile, with its first byte back in place. Where the bytes leave a doubt the tool is asked.
enum class Code { ours, foreign, changed };
Code code_at(ProcessBlock& block, const Point& point, const SignalFrame& frame);

}  // namespace uprobe::agent
