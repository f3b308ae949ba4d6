// SPDX-License-Identifier: MIT
// Function ranges and landing pads from the unwind tables (.eh_frame), which stripped programs keep.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/elf/image.h"

namespace uprobe::elf {

// One FDE.
struct Frame {
  Range code;
  std::uint64_t handlers = 0;  // link-time address of the table of landing pads (LSDA); 0: the function has none
  bool handlers_known = true;  // false: there is a table, at an address that only the running program knows
  bool is_signal = false;      // of code to which signal handlers return
  // At the first instruction the stack pointer points to the return address, and nothing has been saved: a call leads there.
  bool begins_at_call = false;
};

// Every FDE of a function in the order of the table; ranges as below.
std::vector<Frame> frames_of(const Image& image);

// The code of each FDE, in the order of the table; only ranges that start in executable file bytes, clipped to their segment.
// Unreadable entries are skipped.
std::vector<Range> frame_ranges(const Image& image);

// The same for code to which signal handlers return. These ranges start one byte early (glibc's __restore_rt): before the code,
// perhaps inside a nop.
std::vector<Range> signal_frame_ranges(const Image& image);

// Where a throw or a cancellation may enter the code, by its table; nothing if that cannot be read, or has more than `most`
// entries.
std::optional<std::vector<std::uint64_t>> landing_pads(const Image& image, const Frame& frame, std::size_t most);

}  // namespace uprobe::elf
