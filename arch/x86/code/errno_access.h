// SPDX-License-Identifier: MIT
// Where errno is, by the code of libc's __errno_location: glibc and musl compile it to three instructions.
#pragma once

#include <cstdint>
#include <optional>

#include "arch/code/relocate.h"

namespace uprobe::arch {

// errno is at the thread pointer (the first word of the thread control block) plus an offset: a constant, or what the dynamic linker
// has written to the word at a link-time address.
struct ErrnoAccess {
  bool is_in_word = false;
  std::uint64_t value = 0;  // the offset, or the word's address
};

// `code` begins at `address`, __errno_location's first instruction. Nothing: it is another function.
std::optional<ErrnoAccess> errno_access(Bytes code, Addr address);

}  // namespace uprobe::arch
