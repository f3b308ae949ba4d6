// SPDX-License-Identifier: MIT
#include "engine/summary/call_times.h"

#include <algorithm>
#include <string>
#include <vector>

#include "engine/shared/histogram.h"
#include "engine/spec/name.h"
#include "engine/spec/parse.h"

namespace uprobe::summary {
namespace {

std::uint64_t middle(std::uint64_t bucket) {
  return bucket + (shared::log2_part_end(bucket, shared::kSumBits) - bucket) / 2;
}

// The latency that `part` percent of the calls do not exceed.
std::uint64_t percentile(const CallSums& sums, std::uint64_t calls, std::uint64_t part) {
  const std::uint64_t wanted = (calls * part + 99) / 100;
  std::uint64_t seen = 0;
  for (const auto& [latency, sum] : sums.times)
    if (seen += sum.count; seen >= wanted) return middle(latency);
  return 0;
}

const std::vector<spec::Argument>& times() {
  static const std::vector<spec::Argument> kTimes = [] {
    auto parsed = spec::parse_definition("r:calls/times /f:0 $latency $self", {.file_check = {}});
    return parsed ? parsed->arguments : std::vector<spec::Argument>();
  }();
  return kTimes;
}

}  // namespace

spec::ProbeSpec sums_of(spec::ProbeSpec spec) {
  spec.sums_calls = true;
  spec.is_return = true;
  spec.style = spec::Style::event;
  spec.group = spec.group == spec::kDefaultGroup ? std::string(kGroup) : spec.group + "_" + std::string(kGroup);
  spec.arguments = times();
  if (spec.parameters) spec.parameters->arguments = times();
  return spec;
}

CallSummary summarize(const CallSums& sums, const CallCounts& counts) {
  CallSummary row;
  std::uint64_t self = 0;
  for (const auto& [latency, sum] : sums.times) row.total_ns += sum.total, self += sum.self;
  const std::uint64_t timed = sums.timed();
  row.returns = timed + counts.untimed;
  row.calls = counts.began;
  const std::uint64_t unseen =
      row.calls - std::min(row.calls, row.returns);  // more return than begin where some return twice
  row.unfollowed = std::min(counts.unfollowed, unseen);
  row.abandoned = unseen - row.unfollowed;
  row.untimed = counts.untimed;
  if (counts.self_unknown == 0 && (timed != 0 || counts.untimed == 0)) row.self_ns = self;
  if (timed == 0) return row;
  row.mean_ns = row.total_ns / timed;
  row.p50_ns = percentile(sums, timed, 50), row.p90_ns = percentile(sums, timed, 90);
  row.p99_ns = percentile(sums, timed, 99), row.max_ns = middle(sums.times.rbegin()->first);
  return row;
}

}  // namespace uprobe::summary
