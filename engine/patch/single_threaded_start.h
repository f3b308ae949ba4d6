// SPDX-License-Identifier: MIT
// Whether text may be changed in any order, because no thread is executing it.
#pragma once

#include "engine/target/target.h"

namespace uprobe::control {

// True while no thread can stand in the middle of mapped code, nor come back there: the process has one thread, which is
// stopped or waits in the agent, it has no handler of its own that could have interrupted code, and it shares its memory with
// no other process. That is so at the start of a program, until the program's own code runs. `block`: its process block.
bool is_single_threaded_at_start(target::Target& target, Addr block);

}  // namespace uprobe::control
