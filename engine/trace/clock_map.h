// SPDX-License-Identifier: MIT
// Converts times of CLOCK_MONOTONIC to another clock, by readings of both.
//
// boot, tai and wall run as CLOCK_MONOTONIC does, and step: from a reading on that shows another distance it is the new one. mono_raw
// and global have a rate of their own, which is measured between the readings; their times never go backwards (clock.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/trace/clock.h"
#include "engine/trace/clocks.h"

namespace uprobe::trace {

class ClockMap {
 public:
  explicit ClockMap(ClockKind kind) : kind_(kind) {}

  // In the order of their times.
  void add(const ClockReading& reading);
  // Whether a reading has shown that clock.
  bool is_known() const { return kind_ == ClockKind::mono || !steps_.empty() || rated_.has_value(); }
  // `ns` itself as long as it is not known. 0 for a time before that clock's zero.
  std::uint64_t convert(std::uint64_t ns);

 private:
  struct Step {
    std::uint64_t since;     // on CLOCK_MONOTONIC
    std::uint64_t distance;  // modulo 2^64
  };

  void add_step(const ClockReading& reading);
  void add_rate(const ClockReading& reading);

  const ClockKind kind_;
  std::vector<Step> steps_;
  std::optional<Clock> rated_;  // its "tsc" is CLOCK_MONOTONIC
};

}  // namespace uprobe::trace
