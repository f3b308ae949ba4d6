// Hits that came by a jump, seen from a signal handler.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// The interrupted thread is in the agent (its ip is): did it come there from a trampoline? Such a hit leaves nothing behind
// wherever it is abandoned, nobody looks at its end for signals that wait, and unwinders know the way out of it: a signal is
// delivered at once.
bool is_jump_hit(const ProcessBlock& block, const SignalFrame& frame);

}  // namespace uprobe::agent
