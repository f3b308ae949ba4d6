// SPDX-License-Identifier: MIT
#include "engine/service/turns.h"

#include <algorithm>

namespace uprobe::control {
namespace {

using Clock = Turns::Clock;
using namespace std::chrono_literals;

// A thread that waits gives up after ten seconds. There are 16 parts at most: if all of them but one are silent at once, and go on
// with it, the requests of that one wait for less.
constexpr auto kAsARule = 2000ms;
constexpr auto kWithOthers = 250ms;  // when threads of several parts have been silent for kMostInVain lately
constexpr auto kWithSilent = 100ms;  // for a part whose thread has been silent lately
constexpr auto kMostInVain = 4000ms;
constexpr auto kLately = 60s;         // at most
constexpr auto kShortRequest = 20ms;  // what most requests take costs nothing
constexpr int kBehind = 16, kSilence = 30, kSilenceOfAll = kLately / kMostInVain;

void pay(Clock::time_point& until, Clock::time_point now, Clock::duration price) {
  until = std::min(std::max(until, now) + price, now + Clock::duration(kLately));
}

}  // namespace

Clock::time_point Turns::behind_until(std::size_t part) const {
  const auto found = accounts_.find(part);
  return found != accounts_.end() ? found->second.behind_until : Clock::time_point{};
}

std::chrono::milliseconds Turns::patience(std::size_t part, Clock::time_point now) const {
  const auto found = accounts_.find(part);
  if (found != accounts_.end() && now < found->second.silent_until) return kWithSilent;
  return all_silent_until_ - now > kLately - kSilenceOfAll * kAsARule ? kWithOthers : kAsARule;
}

void Turns::charge(std::size_t part, Clock::time_point now, Clock::duration took, Clock::duration in_vain) {
  if (took < kShortRequest) return;
  Account& account = accounts_[part];
  pay(account.behind_until, now, kBehind * took);
  pay(account.silent_until, now, kSilence * in_vain);
  pay(all_silent_until_, now, kSilenceOfAll * in_vain);
}

}  // namespace uprobe::control
