// SPDX-License-Identifier: MIT
// Reads a target's memory a page at a time, for many small reads at ascending addresses. It shows a page as it was at the first
// read.
#pragma once

#include <array>
#include <cstdint>

#include "engine/target/target.h"

namespace uprobe::control {

class TextView {
 public:
  explicit TextView(target::Target& target) : target_(&target) {}
  // All bytes, or an error.
  Status read(Addr from, void* to, std::size_t bytes);

 private:
  static constexpr std::uint64_t kPage = 4096;
  target::Target* target_;
  Addr page_;
  bool has_page_ = false;
  std::array<std::uint8_t, kPage> bytes_;
};

}  // namespace uprobe::control
