// SPDX-License-Identifier: MIT
// An address in a target process. A type of its own, so that it cannot be dereferenced here by mistake.
#pragma once

#include <compare>
#include <cstdint>

namespace uprobe {

struct Addr {
  std::uint64_t value = 0;

  constexpr auto operator<=>(const Addr&) const = default;
  constexpr explicit operator bool() const { return value != 0; }
  constexpr Addr operator+(std::uint64_t n) const { return Addr{value + n}; }
  constexpr Addr operator-(std::uint64_t n) const { return Addr{value - n}; }
  constexpr std::uint64_t operator-(Addr other) const { return value - other.value; }
};

}  // namespace uprobe
