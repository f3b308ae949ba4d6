// SPDX-License-Identifier: MIT
// The symbols of a stripped file as its debug file, or its MiniDebugInfo (.gnu_debugdata: an ELF file packed by xz), has them. They are
// names for the user alone: what decides where code can be changed is read from the file itself.
#pragma once

#include <functional>
#include <memory>

#include "engine/elf/debug_image.h"
#include "engine/elf/elf_file.h"
#include "engine/elf/symbol_tables.h"

namespace uprobe::elf {

class DebugNames {
 public:
  // Null: there are none. The names have no more than `most` bytes.
  static std::unique_ptr<const DebugNames> find(const ElfFile& file, std::uint64_t most);

  void for_each(const std::function<void(const RawSymbol&)>& visit) const { tables_.for_each(visit); }

 private:
  explicit DebugNames(DebugImage image) : image_(std::move(image)), tables_(image_.image()) {}
  static std::unique_ptr<const DebugNames> over(Result<DebugImage> image);

  DebugImage image_;
  SymbolTables tables_;
};

}  // namespace uprobe::elf
