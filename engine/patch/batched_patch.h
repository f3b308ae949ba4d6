// SPDX-License-Identifier: MIT
// Many small pieces of a stopped program's text in few writes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/target/target.h"

namespace uprobe::control {

struct TextPiece {
  Addr at;
  std::span<const std::uint8_t> bytes;  // must outlive the call
};

// Writes neighbouring pieces at once, together with the unchanged bytes between them. Only for text that no thread executes or
// changes during the call. Breakpoints (pieces of one byte) come last and together. After an error some pieces may have been
// written.
Status write_in_runs(target::Target& target, std::vector<TextPiece> pieces);

}  // namespace uprobe::control
