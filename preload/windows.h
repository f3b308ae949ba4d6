// Jumps that take the room of several instructions.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// Where a thread has to go on that is to go on at `address` of the program: there, or, where the address is that of an
// instruction that a jump has written over, at its copy.
u64 place_to_go_on(const ProcessBlock& block, u64 address);

}  // namespace uprobe::agent
