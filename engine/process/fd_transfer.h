// SPDX-License-Identifier: MIT
// Opens and maps the tool's files in the target.
//
// A process that shares the target's descriptors can exchange them at any time. So the tool writes nothing through a descriptor
// of the target, and trusts a mapping that the target has made of one only after check_mapped().
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/base/address.h"
#include "engine/base/result.h"
#include "engine/target/target.h"

namespace uprobe::control {

// Opens the file in the target and returns the target's descriptor, close-on-exec, with the access mode of `fd`; the caller
// closes it there. Uses the file's name in the tool's /proc entry, or a socket where the target cannot see or open that name
// (another user, namespace or root, no /proc). `scratch`: 512 bytes of the target's memory.
Result<int> pass_file(target::Target& target, Addr scratch, int fd);

// Closes `number` in the target if it is the tool's file `fd`.
void close_in(target::Target& target, int number, int fd);

struct MappedRange {
  Addr begin;
  std::uint64_t bytes;
};
// Code::refused unless the target has mapped all of these ranges from the tool's file `fd`.
Status check_mapped(target::Target& target, std::span<const MappedRange> ranges, int fd);

// Whether paths and process ids mean the same in the process as in the tool.
bool shares_our_view(pid_t pid);

// Parts of one of the tool's files that a target maps.
struct FilePart {
  Addr at;  // where nothing is mapped, or something of the tool's, which it replaces
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
