// Function ranges from the unwind tables (.eh_frame), which stripped programs keep.
#pragma once

#include <vector>

#include "engine/elf/image.h"

namespace uprobe::elf {

// The code that each FDE covers, in the order of the table; only ranges that start in executable file bytes, clipped to
// their segment. Entries that cannot be read are left out.
std::vector<Range> frame_ranges(const Image& image);

}  // namespace uprobe::elf
