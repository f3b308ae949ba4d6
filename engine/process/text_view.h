// SPDX-License-Identifier: MIT
// The memory of a target, read a page at a time where many small pieces in a row are wanted. What it shows of a page is as
// old as the first look at it: for one pass over addresses that rise.
#pragma once

#include <array>
#include <cstdint>

#include "engine/target/target.h"

namespace uprobe::control {

class TextView {
 public:
  explicit TextView(target::Target& target) : target_(&target) {}
  // Whole or error.
  Status read(Addr from, void* to, std::size_t bytes);

 private:
  static constexpr std::uint64_t kPage = 4096;
  target::Target* target_;
  Addr page_;
  bool has_page_ = false;
  std::array<std::uint8_t, kPage> bytes_;
};

}  // namespace uprobe::control
