// SPDX-License-Identifier: MIT
// Parts of the tool's files that a target maps.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/base/address.h"
#include "engine/base/result.h"
#include "engine/process/fd_transfer.h"
#include "engine/target/target.h"

namespace uprobe::control {

struct FilePart {
  Addr at;  // where something of the tool's is mapped already, which it replaces
  std::uint64_t bytes;
  int protection;
  std::uint64_t offset;  // in the file
};

struct FileParts {
  int fd;
  std::string path;  // by which the target opens it; empty: its name in the tool's /proc entry
  int sharing;       // MAP_SHARED or MAP_PRIVATE
  std::vector<FilePart> parts;
};

std::vector<MappedRange> ranges_of(const FileParts& file);

// Maps the parts from the target's descriptor `number`.
Status map_parts(target::Target& target, const FileParts& file, int number, const std::string& what);

// Opens, maps and closes all files in one list of calls, which makes `others` after that: of these, mmap must succeed. Code::refused
// where the target does not see the files by their names, or another process may share its descriptors; any other error may have
// left some parts mapped. `scratch`: room for the names.
Status map_at_once(target::Target& target, Addr scratch, std::size_t scratch_bytes, std::span<const FileParts> files,
                   std::span<const target::SystemCall> others);

}  // namespace uprobe::control
