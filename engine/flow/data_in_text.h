// SPDX-License-Identifier: MIT
// Data that symbols (STT_OBJECT) name in executable segments: constants and tables of hand-written code, read-only data of
// programs whose linker put everything into one segment.
#pragma once

#include <vector>

#include "engine/elf/elf_file.h"

namespace uprobe::elf {

// Link-time addresses, sorted and disjoint. A symbol without a size covers one byte.
std::vector<Range> data_in_text(const ElfFile& file);

}  // namespace uprobe::elf
