// SPDX-License-Identifier: MIT
// Lines for the user whose number traced programs can raise: keeps each distinct line once, up to a limit, and counts the rest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace uprobe {

class Notes {
 public:
  static constexpr std::size_t kMost = 100;        // lines
  static constexpr std::size_t kMostBytes = 4096;  // of one line; a longer one is cut off

  void insert(std::string_view line);
  // Adds the lines of the other one, and its count.
  void insert(const Notes& other);
  // In the order in which they came; the last says how many have no line.
  std::vector<std::string> lines() const;
  bool empty() const { return lines_.empty(); }

 private:
  std::vector<std::string> lines_;
  std::uint64_t more_ = 0;  // insertions that found no room
};

}  // namespace uprobe
