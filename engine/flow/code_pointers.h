// SPDX-License-Identifier: MIT
// The addresses of this file's own code in its data while the program runs: values that relocations store, and values in the
// file. Code that loads a pointer from memory to jump through it gets one of these, or one that code has computed.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/elf/image.h"

namespace uprobe::elf {

// Link-time addresses inside the file's executable segments, unsorted, perhaps repeated. For a position-independent file by its
// relocations (RELATIVE, IRELATIVE, 64, GLOB_DAT, JUMP_SLOT with the first value of a lazy slot, and RELR); for any other file
// also every aligned word of its data that could be such an address.
std::vector<std::uint64_t> code_pointers(const Image& image);

}  // namespace uprobe::elf
