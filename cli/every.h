// SPDX-License-Identifier: MIT
// A moment that comes again and again.
#pragma once

#include <chrono>

namespace uprobe::cli {

class Every {
 public:
  // First after one interval.
  explicit Every(std::chrono::nanoseconds interval)
      : interval_(std::chrono::duration_cast<Clock::duration>(interval)), due_(Clock::now() + interval_) {}
  // Whether it has come. Then the next one is an interval later.
  bool is_due() {
    const Clock::time_point now = Clock::now();
    if (now < due_) return false;
    due_ = now + interval_;
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::duration interval_;
  Clock::time_point due_;
};

}  // namespace uprobe::cli
