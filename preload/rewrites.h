// SPDX-License-Identifier: MIT
// Code that the program makes writable: it must find its own bytes there, and no half of a jump after its writes.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// Whether jumps of the tool may stand in [begin, end).
bool may_have_jumps(const ProcessBlock& block, u64 begin, u64 end);

// Called after the tool was asked to replace the jumps in [begin, end), now writable, by breakpoints. If it has not done so,
// this puts the program's bytes back; those probes are out until the tool is shown the code again. `executable`: threads may be
// executing it. System calls (membarrier): as part of the application's mprotect, none under a filter, where such jumps stay.
void give_back_jumps(ProcessBlock& block, u64 begin, u64 end, bool executable);

}  // namespace uprobe::agent
