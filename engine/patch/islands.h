// SPDX-License-Identifier: MIT
// Islands: executable pages of the tool near probed code, where slots and bodies live (engine/shared/trampoline.h).
#pragma once

#include <span>
#include <vector>

#include "engine/process/block.h"
#include "engine/shared/trampoline.h"
#include "engine/target/target.h"

namespace uprobe::control {

inline constexpr std::uint32_t kIslandUnit = shared::kSlotUnit;

// The address for `bytes` (a multiple of kIslandUnit) for code in [begin, end): in an existing island, or in a new one. Pages
// are private, readable and executable, never writable; they are filled through Target::write. Changes the block's head; the
// caller writes it to the process.
Result<Addr> island_room(target::Target& target, Block& block, Addr begin, Addr end, std::uint64_t bytes);

// Whether a probe that is added later, when no island can be made, finds room for code in [begin, end); and the call that
// provides that room. The block's head changes as above.
bool has_spare_room(Block& block, Addr begin, Addr end);
Status spare_room(target::Target& target, Block& block, Addr begin, Addr end);
// The same for several mappings at once. False: nothing was made; where there is no room yet spare_room() says why.
bool spare_rooms(target::Target& target, Block& block, std::span<const target::Mapping> codes);

// Returns the last `bytes` of the most recent allocation, which ends at `end`.
void give_back(Block& block, Addr end, std::uint64_t bytes);

}  // namespace uprobe::control
