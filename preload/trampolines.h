// Faults inside trampolines, which the tool has written into islands.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// Where a thread goes on whose load at `ip` faulted (SIGSEGV or SIGBUS with a positive si_code); 0: that is none of the loads
// of a trampoline. Looks at the islands of the block only, async-signal-safe.
u64 trampoline_fixup(const ProcessBlock& block, u64 ip);

}  // namespace uprobe::agent
