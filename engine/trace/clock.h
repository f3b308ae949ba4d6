// SPDX-License-Identifier: MIT
// Converts the time stamp counter, which the agent reads, to CLOCK_MONOTONIC.
//
// The conversion is a chain of linear pieces. Up to the latest converted stamp it never changes again; beyond that, each
// calibration replaces the estimate by the measurement. So results never go backwards, and most stamps are interpolated between
// two calibrations rather than extrapolated from the last one. Not thread-safe.
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
  // Measures both clocks over a few milliseconds, counted from `early`: waits for the rest of that time.
  static Clock start(ClockSample early = sample());
  // From two samples, `late` after `early`. Calibrates itself further only if a sampler is given.
  Clock(ClockSample early, ClockSample late, std::function<ClockSample()> sampler = nullptr);

  // CLOCK_MONOTONIC in nanoseconds. to_ns(a) <= to_ns(b) for a <= b, over all calls and calibrations. A stamp older than the
  // remembered pieces (at least a minute) is extrapolated.
  std::uint64_t to_ns(std::uint64_t tsc) {
    if (tsc > converted_) converted_ = tsc;
    const Piece& newest = pieces_.back();
    return tsc >= newest.tsc && tsc - newest.tsc < kShort ? newest.ns + scaled_short(tsc - newest.tsc, newest.rate)
                                                          : look_up(tsc);
  }
  // Calibrates again when it is due: soon after the start, later once a second.
  void keep(std::uint64_t now_tsc);
  void add_sample(ClockSample sample);

  std::uint64_t ticks(std::uint64_t ns) const;  // that time in ticks
  std::uint64_t rate() const { return rate_; }  // nanoseconds per tick, << 32
  std::uint64_t started() const { return first_.tsc; }

  // rdtsc, ordered against the loads before and after it.
  static std::uint64_t now();
  // The best of 50 readings of CLOCK_MONOTONIC, each between two readings of the counter.
  static ClockSample sample();

 private:
  // Applies from `tsc` to the next piece: ns + (t - tsc) * rate / 2^32.
  struct Piece {
    std::uint64_t tsc;
    std::uint64_t ns;
    std::uint64_t rate;
  };
  // So many ticks are less than a minute at any rate of a clock, and no product of them overflows.
  static constexpr std::uint64_t kShort = std::uint64_t{1} << 36;
  static std::uint64_t scaled_short(std::uint64_t ticks, std::uint64_t rate) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>(Wide{ticks} * rate >> 32);
  }
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
