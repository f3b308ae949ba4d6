// SPDX-License-Identifier: MIT
// The semaphores of markers (USDT) in a process: counted up while the session wants the marker, down afterwards.
//
// A semaphore is a u16 of the program's own data. The tool writes to addresses that it has found by the file alone, in private
// writable mappings of that file, and keeps in the process block which of them it has counted up: fork copies both. Whatever a
// process has changed there itself, a count neither goes below 0 nor above what the kernel allows.
#pragma once

#include <vector>

#include "engine/process/block.h"
#include "engine/target/target.h"

namespace uprobe::control {

// Whether a process's own data may be at the address, and no other process's.
bool holds_semaphores(const target::Mapping& mapping);

// Whether count_semaphores() would change anything.
bool are_counted(target::Target& target, const Block& block, const std::vector<Addr>& wanted);

// Counts up those of `wanted` (sorted) that are not, also one that was counted up and is 0 again, since its library was loaded
// anew; and down all others. Call Block::renew() first. Code::limit: there are too many; the others are counted.
Status count_semaphores(target::Target& target, Block& block, const std::vector<target::Mapping>& maps,
                        const std::vector<Addr>& wanted);

}  // namespace uprobe::control
