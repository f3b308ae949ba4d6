// SPDX-License-Identifier: MIT
#include "engine/summary/call_times.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/spec/name.h"
#include "engine/spec/parse.h"

namespace uprobe::summary {
namespace {

using trace::HistogramEntry;

constexpr std::uint64_t kBits = 5;  // of kCallTimes
constexpr std::uint64_t kMostBytes = 256u << 20;
constexpr std::uint32_t kMostBits = 10, kLeastBits = 8;
// Of an entry: two slots, the three sums, the key.
constexpr std::uint64_t kEntryBytes = 2 * sizeof(shared::HistogramSlot) + shared::histogram_entry_bytes(8, 2);

std::uint64_t middle(std::uint64_t bucket) { return bucket + (shared::log2_part_end(bucket, kBits) - bucket) / 2; }

std::uint64_t latency_of(const HistogramEntry& entry) { return entry.key.front(); }
std::uint64_t calls_of(const HistogramEntry& entry) { return entry.sums.front(); }

// The latency that `part` percent of the calls do not exceed.
std::uint64_t percentile(const std::vector<const HistogramEntry*>& sorted, std::uint64_t calls, std::uint64_t part) {
  const std::uint64_t wanted = (calls * part + 99) / 100;
  std::uint64_t seen = 0;
  for (const HistogramEntry* entry : sorted)
    if (seen += calls_of(*entry); seen >= wanted) return middle(latency_of(*entry));
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

bool is_of_calls(const program::HistogramPlan& plan) {
  return plan.keys.size() == 1 && plan.keys[0].name == "latency" &&
         plan.keys[0].modifier == program::HistogramModifier::log2_parts && plan.keys[0].width == kBits &&
         plan.values.size() == 3 && plan.values[1].name == "latency" && plan.values[2].name == "self";
}

Result<std::uint32_t> bits_for(std::size_t events) {
  for (std::uint32_t bits = kMostBits; bits >= kLeastBits; --bits)
    if ((kEntryBytes << bits) * events <= kMostBytes / (bits == kLeastBits ? 1 : 8)) return bits;
  const std::uint64_t most = kMostBytes / (kEntryBytes << kLeastBits);
  return Error{
      .code = Code::limit,
      .text = "a summary takes " + std::to_string(most) + " functions at most, and these are " + std::to_string(events),
      .help = "choose fewer by a pattern"};
}

CallSummary summarize(const trace::HistogramCopy& copy, std::uint64_t began, std::uint64_t unfollowed,
                      std::uint64_t self_unknown) {
  CallSummary sum;
  std::vector<const HistogramEntry*> sorted;
  std::uint64_t timed = 0, self = 0;
  for (const HistogramEntry& entry : copy.entries) {
    if (entry.key.empty() || entry.sums.size() < 3) continue;
    sorted.push_back(&entry);
    timed += calls_of(entry), sum.total_ns += entry.sums[1], self += entry.sums[2];
  }
  std::ranges::sort(sorted, {}, [](const HistogramEntry* entry) { return latency_of(*entry); });
  sum.returns = timed + copy.dropped;
  sum.calls = std::max(began, sum.returns);
  sum.unfollowed = std::min(unfollowed, sum.calls - sum.returns);
  sum.abandoned = sum.calls - sum.returns - sum.unfollowed;
  sum.untimed = copy.dropped;
  if (self_unknown == 0 && copy.dropped == 0) sum.self_ns = self;
  if (timed == 0) return sum;
  sum.mean_ns = sum.total_ns / timed;
  sum.p50_ns = percentile(sorted, timed, 50), sum.p90_ns = percentile(sorted, timed, 90);
  sum.p99_ns = percentile(sorted, timed, 99), sum.max_ns = middle(latency_of(*sorted.back()));
  return sum;
}

}  // namespace uprobe::summary
