// SPDX-License-Identifier: MIT
// Processes that have rung while the memory with their requests did not come: another user's may take its time (engine/proxy/proxy.h). They
// are looked at again, while the others are served, until it is too late.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace uprobe::control {

class Unheard {
 public:
  using Clock = std::chrono::steady_clock;

  // True: it has been waited for long enough, or there are too many.
  bool add(pid_t pid, const std::string& why, Clock::time_point now) {
    if (all_.size() < kMost) all_.try_emplace(pid, One{now + kPatience, why});
    const auto found = all_.find(pid);
    if (found != all_.end() && now < found->second.until) return false;
    forget(pid);
    return true;
  }
  void forget(pid_t pid) { all_.erase(pid); }
  // Those to look at now: for a small share of the time.
  std::vector<pid_t> due(Clock::time_point now) const {
    std::vector<pid_t> pids;
    if (now < next_) return pids;
    for (const auto& [pid, one] : all_) pids.push_back(pid);
    return pids;
  }
  void have_been_looked_at(Clock::time_point begun, Clock::time_point ended) {
    next_ = ended + std::max<Clock::duration>(kPause, kShare * (ended - begun));
  }
  // Why each of them was not served.
  std::vector<std::string> reasons() const {
    std::vector<std::string> all;
    for (const auto& [pid, one] : all_) all.push_back(one.why);
    return all;
  }

 private:
  static constexpr std::chrono::milliseconds kPatience{2000}, kPause{20};
  static constexpr int kShare = 5;
  static constexpr std::size_t kMost = 1024;
  struct One {
    Clock::time_point until;
    std::string why;
  };

  std::map<pid_t, One> all_;
  Clock::time_point next_{};
};

}  // namespace uprobe::control
