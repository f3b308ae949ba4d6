// SPDX-License-Identifier: MIT
// Sets of CPUs as the kernel reads and writes them: "0-3,8", "all", "0-N:2/4" (every group of four, its first two).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace uprobe::program {

class CpuSet {
 public:
  static CpuSet all(unsigned cpus);

  void add(unsigned cpu);
  bool has(std::uint64_t cpu) const;
  unsigned count() const;
  unsigned first() const;                              // of a set that is not empty
  const std::string& bytes() const { return bytes_; }  // a bit for each CPU, the lowest first

 private:
  std::string bytes_;
};

// Nothing for a list that is malformed or names a CPU that is not below `cpus` (at least 1).
std::optional<CpuSet> read_cpu_list(std::string_view text, unsigned cpus);

}  // namespace uprobe::program
