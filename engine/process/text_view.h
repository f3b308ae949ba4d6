// SPDX-License-Identifier: MIT
// Reads a target's memory a page at a time, for many small reads at ascending addresses. It shows a page as it was at the first
// read.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/target/target.h"

namespace uprobe::control {

class TextView {
 public:
  explicit TextView(target::Target& target) : target_(&target) {}
  // What lies around each of a few places, which will be read, is read now, by one call. Ascending.
  void look_ahead(std::span<const Addr> places);
  // What has been read is read again.
  void forget() { ahead_.clear(), has_page_ = false; }
  // All bytes, or an error.
  Status read(Addr from, void* to, std::size_t bytes);

 private:
  static constexpr std::uint64_t kPage = 4096;
  struct Part {
    Addr begin;
    std::vector<std::uint8_t> bytes;
  };
  bool has_ahead(Addr from, void* to, std::size_t bytes) const;

  target::Target* target_;
  std::vector<Part> ahead_;
  Addr page_;
  bool has_page_ = false;
  std::array<std::uint8_t, kPage> bytes_;
};

}  // namespace uprobe::control
