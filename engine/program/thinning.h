// SPDX-License-Identifier: MIT
// Which part of an event's hits is recorded; the target decides (preload/thinning.h), and counts the others by reason.
#pragma once

#include <cstdint>

namespace uprobe::program {

inline constexpr std::uint32_t kMostPerSecond = 1'000'000'000;

struct Thinning {
  std::uint32_t one_in = 0;       // one of so many calls, by chance, entry and return together; 0: all
  std::uint32_t per_second = 0;   // at most so many records, up to kMostPerSecond; 0: no limit
  std::uint64_t min_latency = 0;  // nanoseconds that a call lasts at least, of events at returns; 0: no limit

  bool needs_entry() const { return one_in != 0 || min_latency != 0; }  // of an event at a return
  bool leaves_out() const { return one_in != 0 || per_second != 0 || min_latency != 0; }
};

}  // namespace uprobe::program
