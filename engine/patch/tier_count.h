// SPDX-License-Identifier: MIT
// How the places of events are probed in a process at this moment, by its text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "engine/process/block.h"
#include "engine/target/target.h"

namespace uprobe::control {

struct TierCount {
  std::size_t jumps = 0, breakpoints = 0, hardware = 0;
};
using TierCounts = std::map<std::uint16_t, TierCount>;  // by event

// Adds the places of a process. `block`: its block's address. A place that is not armed does not count.
Status count_tiers(target::Target& target, Addr block, TierCounts& counts);

// "jump", "2 jump, 1 int3: WHY", "not armed". `why`: what tells against a jump; empty: that is not known, or nothing does.
std::string describe(const TierCount& count, const std::string& why);

}  // namespace uprobe::control
