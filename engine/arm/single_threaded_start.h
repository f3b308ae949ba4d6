// SPDX-License-Identifier: MIT
// Whether text may be changed as one likes: nobody is executing it.
#pragma once

#include "engine/target/target.h"

namespace uprobe::control {

// Nobody can stand in the middle of code that the process has mapped, nor come back there: it has one thread, which is
// stopped or waits in the agent, no handler of its own that could have interrupted anything, and shares its memory with
// nobody. So it is at the start of a program, until the program's own code runs. `block` is its process block.
bool is_single_threaded_at_start(target::Target& target, Addr block);

}  // namespace uprobe::control
