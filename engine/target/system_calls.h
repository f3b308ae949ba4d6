// SPDX-License-Identifier: MIT
// System calls that a target makes one after the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace uprobe::target {

struct SystemCall {
  static constexpr int kTakesNone = -1;

  long number;
  std::array<std::uint64_t, 6> arguments;
  int takes = kTakesNone;   // the argument, from 0, that is the result of an earlier call of the list
  std::size_t from = 0;     // the index of that call
  std::int64_t result = 0;  // as the kernel returns it: -errno on failure

  bool has_failed() const { return result < 0 && result > -4096; }
};

}  // namespace uprobe::target
