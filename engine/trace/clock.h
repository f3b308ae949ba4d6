// SPDX-License-Identifier: MIT
// From the time stamp counter, which the agent stamps with, to CLOCK_MONOTONIC.
//
// The conversion is a chain of straight pieces. Up to the latest stamp that has been converted it never changes again;
// beyond that, each calibration replaces the guess by what was measured. So results never go backwards, and most stamps
// are interpolated between two calibrations rather than extrapolated from the last. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace uprobe::trace {

// The two clocks, read at the same moment.
struct ClockSample {
  std::uint64_t tsc = 0;
  std::uint64_t ns = 0;
};

class Clock {
 public:
  // Measures both clocks over a few milliseconds, from `early` on: waits for what is left of them.
  static Clock start(ClockSample early = sample());
  // From two samples, `late` after `early`; calibrates itself no further unless a sampler is given.
  Clock(ClockSample early, ClockSample late, std::function<ClockSample()> sampler = nullptr);

  // CLOCK_MONOTONIC in nanoseconds. to_ns(a) <= to_ns(b) for a <= b, over all calls and calibrations; a stamp from
  // before the pieces that are remembered (a minute at least) is extrapolated.
  std::uint64_t to_ns(std::uint64_t tsc);
  // Re-calibrates when it is time to: soon after the start, later each second.
  void keep(std::uint64_t now_tsc);
  void add_sample(ClockSample sample);

  std::uint64_t ticks(std::uint64_t ns) const;  // how many ticks so long a time has
  std::uint64_t rate() const { return rate_; }  // nanoseconds of a tick, << 32
  std::uint64_t started() const { return first_.tsc; }

  // rdtsc, ordered against the loads before and after it.
  static std::uint64_t now();
  // The best of 50 readings of CLOCK_MONOTONIC between two of the counter.
  static ClockSample sample();

 private:
  // From `tsc` up to the next piece: ns + (t - tsc) * rate / 2^32.
  struct Piece {
    std::uint64_t tsc;
    std::uint64_t ns;
    std::uint64_t rate;
  };
  static std::uint64_t at(const Piece& piece, std::uint64_t tsc);
  std::uint64_t look_up(std::uint64_t tsc) const;

  ClockSample first_;
  ClockSample last_;
  std::uint64_t rate_ = 0;  // ns << 32 per tick, over the first two samples
  std::function<ClockSample()> sampler_;
  std::vector<Piece> pieces_;
  std::uint64_t converted_ = 0;  // the latest stamp converted so far
  std::uint64_t due_ = 0;
  std::uint64_t interval_ = 0;
};

}  // namespace uprobe::trace
