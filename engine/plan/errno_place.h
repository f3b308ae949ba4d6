// SPDX-License-Identifier: MIT
// Which file of a program is its libc, and where that keeps a thread's errno.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "engine/elf/elf_file.h"
#include "engine/shared/trigger.h"

namespace uprobe::plan {

struct ErrnoPlace {
  std::shared_ptr<const elf::ElfFile> libc;
  shared::ErrnoPlace place = shared::ErrnoPlace::none;
  std::uint64_t at = 0;  // see shared::Trigger::errno_at
};

// By the file's __errno_location; nothing: it has none, or one of another form.
std::optional<ErrnoPlace> errno_place_in(const std::shared_ptr<const elf::ElfFile>& file);

}  // namespace uprobe::plan
