// SPDX-License-Identifier: MIT
// Files that hold the debug information of another one, at the places where distributions and debuggers keep them. Their owners may
// have put anything there: a file counts only if its build id, and the check sum that the program keeps of it, are the right ones.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/regular_file.h"
#include "engine/elf/elf_file.h"

namespace uprobe::elf {

inline constexpr const char* kDebugFolder = "/usr/lib/debug";
inline constexpr std::uint64_t kMostDebugFile = std::uint64_t{4} << 30;

struct DebugFile {
  std::string path;
  RegularFile file;
};

// What a look for a file's debug file has found.
struct DebugFileSearch {
  std::optional<DebugFile> found;
  std::vector<std::string> wrong;  // "PATH: why it is not the file's"
};

// By build id in kDebugFolder and among those that debuginfod has fetched, then by .gnu_debuglink: beside the file, in .debug/, and in
// kDebugFolder. For a file of a process with a root of its own (a path through /proc/PID/root) in that root first. No file may be
// larger than kMostDebugFile; one that only its name and check sum show to be right, no larger than 64 MiB.
DebugFileSearch find_debug_file(const ElfFile& file);

// ".build-id/ab/cdef.debug"; empty for bytes that are no build id.
std::string build_id_name(std::span<const std::uint8_t> build_id);

// The build id of a 64-bit ELF file, in hexadecimal and 32 bytes at most; empty: it has none. Reads its headers and notes alone, and
// trusts neither.
std::string build_id_in(const Fd& file);

// Where the files lie that a file at this path names: folders below `root`.
struct Folders {
  std::string root;                // "/proc/PID/root", or empty
  std::vector<std::string> names;  // as the path names it, and without symbolic links
};
Folders folders_of(const std::string& path);

}  // namespace uprobe::elf
