// SPDX-License-Identifier: MIT
// The numbers of repetitions of a run of uprobe-bench.
#pragma once

#include <cstdint>

namespace uprobe::bench {

struct Options {
  int repetitions = 15, launches = 7, whole_runs = 3;
  std::uint64_t traps = 20'000;  // calls in a repetition: of functions that trap, of others
  std::uint64_t calls = 2'000'000, hand_hits = 200'000;
  int seconds = 10;
};

}  // namespace uprobe::bench
