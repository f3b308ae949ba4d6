// SPDX-License-Identifier: MIT
// Code that the program makes writable: what it writes there must find its own bytes, and no half of a jump.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// Whether jumps of ours may stand in [begin, end).
bool may_have_jumps(const ProcessBlock& block, u64 begin, u64 end);

// The tool has been asked to make breakpoints of the jumps in [begin, end), which can be written by now. Where it has not, the
// program gets back what stood there; those probes are out until the tool is shown the code again. `executable`: threads may be executing it. System calls (membarrier): in the name of the
// application's mprotect, none under a filter, where such jumps stay.
void give_back_jumps(ProcessBlock& block, u64 begin, u64 end, bool executable);

}  // namespace uprobe::agent
