// Code that comes into the process by mmap and mprotect, and code that is gone. See mappings.cpp.
#pragma once

#include "arch/x86/entry/signal_frame.h"
#include "preload/agent.h"

namespace uprobe::agent {

// The thread is about to call mmap; mprotect or pkey_mprotect. True: the call has been made, `result` is what the kernel
// returned, and code that it made executable is probed. False: the displaced copy shall make it.
bool map_pages(ProcessBlock& block, const SignalFrame& frame, long& result);
bool protect_pages(ProcessBlock& block, const SignalFrame& frame, long& result);

// A breakpoint was executed at a point: whether the point's code still stands there, or somebody else's does. Where the bytes
// leave a doubt the tool is asked.
bool has_its_code(ProcessBlock& block, const Point& point, const SignalFrame& frame);

}  // namespace uprobe::agent
