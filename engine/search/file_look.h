// SPDX-License-Identifier: MIT
// What a part of a mapped file holds for the tool's own points (engine/arm/internal_points.h). Looking may take as long as reading the file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/elf/elf_file.h"
#include "engine/flow/system_calls.h"

namespace uprobe::control {

// The facts by which stat identifies a file and shows that it has not changed since it was read.
struct FileVersion {
  elf::Identity identity;
  std::int64_t bytes = 0, modified = 0;  // nanoseconds
  auto operator<=>(const FileVersion&) const = default;
};

// A part of a file as it is mapped.
struct MappedPart {
  FileVersion version;
  std::uint64_t offset = 0, bytes = 0;
  auto operator<=>(const MappedPart&) const = default;
};

// All that a look needs, so that any thread can take it.
struct LookOrder {
  MappedPart part;
  std::string name, shown;                     // by which the tool opens it, and for lines
  std::shared_ptr<const elf::ElfFile> probed;  // not null: it has been read already
  bool fears_unwinders = false, ends_too = false;
};

struct FileLook {
  std::shared_ptr<const elf::ElfFile> file;  // null: it needs no points
  std::vector<plan::SystemCallSite> sites;
  std::string why;  // a line where it cannot be followed; may be empty
};

FileLook look_into(const LookOrder& order);
// The calls of a file.
FileLook look_into(std::shared_ptr<const elf::ElfFile> file, bool ends_too);

// How much work a look can be, in bytes that the file's owner can make up. Files of root and of the tool's own user count for a
// forty-eighth.
std::uint64_t work_of(const LookOrder& order);

}  // namespace uprobe::control
