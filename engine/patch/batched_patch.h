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
  std::span<const std::uint8_t> bytes;  // the caller's
};

// What lies near each other in one write, the bytes in between as they are: for text that nobody executes or changes meanwhile.
// All is read before anything is written. On an error some may have been written.
Status write_in_runs(target::Target& target, std::vector<TextPiece> pieces);

}  // namespace uprobe::control
