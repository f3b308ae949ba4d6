// SPDX-License-Identifier: MIT
// Future jumps: points of code that runs, for which everything is ready for a jump over a whole window (slot, body, copy), while
// their text is a breakpoint with the original bytes after it. A thread that traps there goes on in the copy of the whole window,
// so no thread enters the window any more; the tool writes the jump when it has seen that none is left inside
// (engine/arm/future_jumps.h). Which points these are is not noted anywhere: their text shows it.
#pragma once

#include "engine/shared/process_block.h"

namespace uprobe::shared {

// `text`: the kJumpBytes bytes at the point.
constexpr bool is_future_jump(const Point& point, const Undo& undo, const u8* text) {
  if (!is_armed_jump(point) || point.jump_bytes != kJumpBytes || is_prefix_window(point)) return false;
  if (undo.state != 1 || text[0] != kBreakpoint) return false;
  for (u32 i = 1; i < kJumpBytes; ++i)
    if (text[i] != undo.original[i]) return false;
  return true;
}

}  // namespace uprobe::shared
