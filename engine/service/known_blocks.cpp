// SPDX-License-Identifier: MIT
#include "engine/service/known_blocks.h"

#include <algorithm>

namespace uprobe::control {

void KnownBlocks::forget() {
  const std::set<Addr> used = in_use_();
  std::erase_if(all_, [&](Addr block) { return !used.contains(block); });
  most_ = std::max(kFew, 2 * all_.size());
}

}  // namespace uprobe::control
