// SPDX-License-Identifier: MIT
// Files that a program writes about the code that it generates.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/base/regular_file.h"

namespace uprobe::control {

inline constexpr std::size_t kPart = std::size_t{1} << 20;  // that is read at once
inline constexpr int kMostParts = 16;                       // in one look
inline constexpr std::size_t kMostName = 4096;

// Whether it can be a function of a program: neither the kernel's, nor longer than any.
constexpr bool is_range_of_code(std::uint64_t address, std::uint64_t bytes) {
  constexpr std::uint64_t kEnd = std::uint64_t{1} << 47, kMost = std::uint64_t{1} << 30;
  return bytes != 0 && bytes <= kMost && address != 0 && address < kEnd - bytes;
}

// A regular file of the process's user or of root, by its path in the process's own file system, reached without a link. Nothing: there
// is no such file.
std::optional<RegularFile> open_of_program(pid_t pid, const std::string& path);

}  // namespace uprobe::control
