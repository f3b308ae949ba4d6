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

// Whether the program may run with a part of the breakpoints, should the tool be killed before it has written the others.
enum class Part : bool { is_harmless, is_deadly };

// Writes neighbouring pieces at once, together with the unchanged bytes between them. Only for text that no thread executes or
// changes during the call. Breakpoints (pieces of one byte) come last; where a part of them is deadly, all are written or none, also if
// the tool is killed. The same holds for jumps that reach into another page. After an error some pieces may have been written.
Status write_in_runs(target::Target& target, std::vector<TextPiece> pieces, Part part = Part::is_harmless);

}  // namespace uprobe::control
