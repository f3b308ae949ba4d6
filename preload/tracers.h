// SPDX-License-Identifier: MIT
// Debuggers in the traced tree. See tracers.cpp.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// A thread stands at ptrace(request, pid, ...). True: the call is answered, `result` is the kernel's or kNotMade; false: the
// copy has to make it. System calls: those of a request to the tool.
bool call_ptrace(ProcessBlock& block, const SignalFrame& frame, long& result);

// Whether the calling thread has asked to be traced and waits for execve to begin with it.
bool is_traced_at_exec(ProcessBlock& block);
// Its execve or execveat, after which the tracer stands at the new program's first instruction. Returns as the call does; or
// kNotMade.
long execute_traced(ProcessBlock& block, const SignalFrame& frame);

}  // namespace uprobe::agent
