// SPDX-License-Identifier: MIT
// Islands: executable pages of ours near the code that is probed, where slots and bodies live (engine/shared/trampoline.h).
#pragma once

#include <vector>

#include "engine/process/block.h"
#include "engine/shared/trampoline.h"
#include "engine/target/target.h"

namespace uprobe::control {

inline constexpr std::uint32_t kIslandUnit = shared::kSlotUnit;

// Where `bytes` (a multiple of kIslandUnit) for code in [begin, end) go: in an island that the process has already, or in a
// new one. Pages are private, readable and executable, never writable; they are filled through
// Target::write. The block's head is changed; the caller writes it.
Result<Addr> island_room(target::Target& target, Block& block, Addr begin, Addr end, std::uint64_t bytes);

// Whether a probe that joins while the program runs, when nobody can make an island, finds room for code in [begin, end); and what
// sees to it. The block's head is changed as above.
bool has_spare_room(Block& block, Addr begin, Addr end);
Status spare_room(target::Target& target, Block& block, Addr begin, Addr end);

// The last `bytes` of the room that was got last, which ends at `end`, are not needed.
void give_back(Block& block, Addr end, std::uint64_t bytes);

}  // namespace uprobe::control
