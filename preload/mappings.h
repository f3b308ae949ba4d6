// SPDX-License-Identifier: MIT
// Code that comes into the process by mmap and mprotect, and code that goes. See mappings.cpp.
#pragma once

#include "arch/entry/signal_frame.h"
#include "preload/agent.h"
#include "preload/calls.h"

namespace uprobe::agent {

// The thread is about to call mmap; mprotect or pkey_mprotect. True: the agent has made the call, `result` is the kernel's, and
// code that it made executable is probed. False: the displaced copy has to make it.
bool map_pages(ProcessBlock& block, const SignalFrame& frame, long& result);
bool protect_pages(ProcessBlock& block, const SignalFrame& frame, long& result);
// The same for a thread that comes by a jump. False: it has to come by a signal, since the tool has to be asked, or since the pages
// are of the stack that the agent is on.
bool map_pages_at_once(ProcessBlock& block, const SystemCall& call, long& result);
bool protect_pages_at_once(ProcessBlock& block, const SystemCall& call, long& result);

// Whether the tool need not be asked at this library hook: see ProcessBlock::quiet_hooks.
bool is_quiet_hook(ProcessBlock& block);

// The code at a point whose breakpoint was executed: the point's own; foreign code or a foreign breakpoint; or the program's
// code, changed since, with its first byte back in place. If the bytes leave a doubt the agent asks the tool.
enum class Code { ours, foreign, changed };
Code code_at(ProcessBlock& block, const Point& point, const SignalFrame& frame);

}  // namespace uprobe::agent
