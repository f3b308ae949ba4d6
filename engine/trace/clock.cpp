// SPDX-License-Identifier: MIT
// Calibration and conversion; see clock.h.
#include "engine/trace/clock.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "arch/abi/cycle_counter.h"

namespace uprobe::trace {

namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kFirstInterval = kSecond / 50;
constexpr int kReadings = 50;
constexpr std::size_t kPieces = 256;  // each calibration adds at most two

std::uint64_t clamp_wide(Wide value) { return value > kMost ? kMost : static_cast<std::uint64_t>(value); }
std::uint64_t scaled(std::uint64_t ticks, std::uint64_t rate) { return clamp_wide(Wide{ticks} * rate >> 32); }

// Rounded down, so that a piece never ends above the beginning of the next one.
std::uint64_t rate_between(std::uint64_t ticks, std::uint64_t ns) {
  return ticks == 0 ? 0 : clamp_wide((Wide{ns} << 32) / ticks);
}

}  // namespace

std::uint64_t Clock::now() { return arch::read_cycles(); }

ClockSample Clock::sample() {
  ClockSample best;
  std::uint64_t shortest = kMost;
  for (int i = 0; i < kReadings; ++i) {
    timespec time{};
    const std::uint64_t before = now();
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    const std::uint64_t took = now() - before;
    if (took >= shortest) continue;
    shortest = took;
    best = {before + took / 2,
            static_cast<std::uint64_t>(time.tv_sec) * kSecond + static_cast<std::uint64_t>(time.tv_nsec)};
  }
  return best;
}

// 5 ms give a rate that is exact to a few millionths; the first calibrations follow soon and measure longer times.
Clock Clock::start(ClockSample early) {
  constexpr std::uint64_t kApart = 5'000'000;
  const std::uint64_t now = sample().ns;
  if (now < early.ns + kApart) std::this_thread::sleep_for(std::chrono::nanoseconds(early.ns + kApart - now));
  return Clock(early, sample(), &Clock::sample);
}

Clock::Clock(ClockSample early, ClockSample late, std::function<ClockSample()> sampler)
    : first_(early), last_(late), sampler_(std::move(sampler)) {
  rate_ = std::max<std::uint64_t>(rate_between(late.tsc - early.tsc, late.ns - early.ns), 1);
  pieces_ = {{early.tsc, early.ns, rate_}, {late.tsc, late.ns, rate_}};
  interval_ = kFirstInterval;
  due_ = late.tsc + ticks(interval_);
}

std::uint64_t Clock::ticks(std::uint64_t ns) const { return clamp_wide((Wide{ns} << 32) / rate_); }

std::uint64_t Clock::at(const Piece& piece, std::uint64_t tsc) {
  if (tsc < piece.tsc) {
    const std::uint64_t before = scaled(piece.tsc - tsc, piece.rate);
    return before > piece.ns ? 0 : piece.ns - before;
  }
  return clamp_wide(Wide{piece.ns} + scaled(tsc - piece.tsc, piece.rate));
}

// Most stamps are recent, so the search starts at the newest piece.
std::uint64_t Clock::look_up(std::uint64_t tsc) const {
  auto piece = pieces_.rbegin();
  while (std::next(piece) != pieces_.rend() && tsc < piece->tsc) ++piece;
  return at(*piece, tsc);
}

void Clock::keep(std::uint64_t now_tsc) {
  if (!sampler_ || now_tsc < due_) return;
  add_sample(sampler_());
  interval_ = std::min(2 * interval_, kSecond);
  due_ = now_tsc + ticks(interval_);
}

// A rate that is off by more than a hundredth is no clock drift: the machine slept. Then the step is taken over, the rate is
// not. A sample older than the latest converted stamp is useless.
void Clock::add_sample(ClockSample sample) {
  const std::uint64_t fixed = std::max(converted_, pieces_.back().tsc);
  if (sample.tsc <= fixed || sample.tsc <= last_.tsc || sample.ns < last_.ns) return;
  std::uint64_t rate = rate_between(sample.tsc - last_.tsc, sample.ns - last_.ns);
  if (rate < rate_ - rate_ / 100 || rate > rate_ + rate_ / 100) rate = rate_;

  const std::uint64_t fixed_ns = look_up(fixed);
  const std::uint64_t ns = std::max(sample.ns, fixed_ns);
  const std::uint64_t bridge = rate_between(sample.tsc - fixed, ns - fixed_ns);
  if (pieces_.back().tsc == fixed) pieces_.pop_back();
  pieces_.push_back({fixed, fixed_ns, bridge});
  pieces_.push_back({sample.tsc, ns, rate});
  if (pieces_.size() > kPieces) pieces_.erase(pieces_.begin(), pieces_.begin() + kPieces / 2);
  last_ = sample;
}

}  // namespace uprobe::trace
