// SPDX-License-Identifier: MIT
#include "engine/trace/clock_map.h"

#include <algorithm>

namespace uprobe::trace {

namespace {

constexpr std::uint64_t kMostBefore = 1'000'000'000;
// Two readings of the same distance differ by less, on machines that are not too busy.
constexpr std::uint64_t kNoise = 2'000;
constexpr std::size_t kMostSteps = 1024;

bool has_own_rate(ClockKind kind) { return kind == ClockKind::mono_raw || kind == ClockKind::global; }

std::uint64_t difference(std::uint64_t a, std::uint64_t b) { return std::min(a - b, b - a); }

}  // namespace

void ClockMap::add(const ClockReading& reading) {
  if (kind_ == ClockKind::mono || reading.at(kind_) == 0) return;
  has_own_rate(kind_) ? add_rate(reading) : add_step(reading);
}

void ClockMap::add_step(const ClockReading& reading) {
  const std::uint64_t since = reading.at(ClockKind::mono), distance = reading.at(kind_) - since;
  if (!steps_.empty() && (since < steps_.back().since || difference(distance, steps_.back().distance) < kNoise)) return;
  if (steps_.size() == kMostSteps) steps_.erase(steps_.begin(), steps_.begin() + kMostSteps / 2);
  steps_.push_back({since, distance});
}

// Until there is a second reading, both clocks are taken to run alike: they differ by some millionths.
void ClockMap::add_rate(const ClockReading& reading) {
  const ClockSample sample{reading.at(ClockKind::mono), reading.at(kind_)};
  if (rated_) return rated_->add_sample(sample);
  const std::uint64_t before = std::min({kMostBefore, sample.tsc, sample.ns});
  rated_.emplace(ClockSample{sample.tsc - before, sample.ns - before}, sample);
}

std::uint64_t ClockMap::convert(std::uint64_t ns) {
  if (rated_) return rated_->to_ns(ns);
  if (steps_.empty()) return ns;
  auto step = steps_.rbegin();
  while (std::next(step) != steps_.rend() && ns < step->since) ++step;
  const std::uint64_t converted = ns + step->distance;
  const bool is_negative = step->distance >> 63 != 0 && converted > ns;
  return is_negative ? 0 : converted;
}

}  // namespace uprobe::trace
