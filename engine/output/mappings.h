// SPDX-License-Identifier: MIT
// What code a process has had at which addresses, for readers of a recording who look up names themselves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace uprobe::format {

// An executable mapping of a file, or of the vDSO. Path and id are hostile input.
struct MappedFile {
  std::uint64_t begin = 0, end = 0, offset = 0;
  std::string path, build_id;  // as /proc/PID/maps has it; in hexadecimal, empty: not known
};

struct ProcessMappings {
  std::uint32_t pid = 0;
  std::uint64_t ns = 0;  // of CLOCK_MONOTONIC: they were there at this time
  bool is_all = false;   // whatever else was there is gone; else only what they cover is
  std::vector<MappedFile> files;
};

}  // namespace uprobe::format
