// SPDX-License-Identifier: MIT
// The addresses of this file's own code that its data hold once the program runs: what relocations put there, and what
// stands there already. Whoever loads a pointer from memory to jump through it gets one of these, or one that
// code made.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/elf/image.h"

namespace uprobe::elf {

// Link-time addresses inside the file's executable segments, in no order, perhaps repeated. Of a position-independent file by its
// relocations (RELATIVE, IRELATIVE, 64, GLOB_DAT, JUMP_SLOT with what a lazy slot holds at first, and RELR); of another
// one every aligned word of its data that could be such an address, besides.
std::vector<std::uint64_t> code_pointers(const Image& image);

}  // namespace uprobe::elf
