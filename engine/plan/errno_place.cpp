// SPDX-License-Identifier: MIT
#include "engine/plan/errno_place.h"

#include "arch/code/errno_access.h"

namespace uprobe::plan {

std::optional<ErrnoPlace> errno_place_in(const std::shared_ptr<const elf::ElfFile>& file) {
  const auto symbol = file->find_any("__errno_location");
  const auto offset = symbol && symbol->is_function ? file->offset_of_address(symbol->address) : std::nullopt;
  if (!offset || *offset >= file->bytes().size()) return std::nullopt;
  const auto access = arch::errno_access(file->bytes().subspan(*offset), Addr{symbol->address});
  if (!access) return std::nullopt;
  return ErrnoPlace{.libc = file,
                    .place = access->is_in_word ? shared::ErrnoPlace::word : shared::ErrnoPlace::offset,
                    .at = access->value};
}

}  // namespace uprobe::plan
