// SPDX-License-Identifier: MIT
// The pages of a trace.dat. They come in the order of time, and the file has those of each processor together, after a head that is
// known last: so they are written one after the other from the file's beginning on, and sorted in place at the end. A page is read
// and written once for that; only the number of its processor is kept in memory.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/export/files.h"

namespace uprobe::format {

class PageFile {
 public:
  // Of the final file, in bytes.
  struct Part {
    std::uint64_t begin = 0, bytes = 0;
  };

  explicit PageFile(Files* files) : files_(files) {}

  void add(std::uint32_t cpu, std::string_view page);
  // Where the pages of each processor will be, up to the last one that has any, after a head of so many bytes.
  std::vector<Part> parts(std::uint64_t head_bytes) const;
  // Puts them there.
  void sort(std::uint64_t head_bytes);

 private:
  std::vector<std::uint64_t> places(std::uint64_t head_bytes) const;

  Files* const files_;
  std::vector<std::uint16_t> cpu_of_;  // by page
  std::uint32_t cpus_ = 1;
};

}  // namespace uprobe::format
