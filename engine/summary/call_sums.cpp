// SPDX-License-Identifier: MIT
#include "engine/summary/call_sums.h"

#include <algorithm>

namespace uprobe::summary {
namespace {

std::uint64_t load(const std::uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }

// The sums that are in force at a count are written over only after the next count is in force.
CallSums::Sum read_cell(const shared::SumCell& cell) {
  constexpr int kMostLooks = 100;  // a program that adds all the time
  CallSums::Sum sum;
  for (int looks = 0; looks < kMostLooks; ++looks) {
    sum.count = load(cell.count);
    sum.total = load(cell.total[sum.count & 1]), sum.self = load(cell.self[sum.count & 1]);
    if (load(cell.count) == sum.count) break;
  }
  return sum;
}

// Of the row without a CPU.
CallSums::Sum read_shared_cell(const shared::SumCell& cell) {
  return {.count = load(cell.count), .total = load(cell.total[0]), .self = load(cell.self[0])};
}

void add_row(const trace::SumsMemory& memory, const shared::SumRow& row, bool has_cpu, CallSums& sums) {
  sums.began += load(row.entries.count);
  for (std::uint32_t group = 0; group < shared::kSumGroups; ++group) {
    const std::uint32_t chunk = __atomic_load_n(&row.chunks[group], __ATOMIC_ACQUIRE);
    if (chunk == 0 || chunk > memory.chunk_count) continue;
    const shared::SumCell* const cells = memory.chunks + std::uint64_t{chunk - 1} * shared::kSumParts;
    for (std::uint32_t part = 0; part < shared::kSumParts; ++part) {
      const CallSums::Sum more = has_cpu ? read_cell(cells[part]) : read_shared_cell(cells[part]);
      if (more.count == 0) continue;
      CallSums::Sum& sum = sums.times[shared::sum_bucket(group, part)];
      sum.count += more.count, sum.total += more.total, sum.self += more.self;
    }
  }
}

}  // namespace

std::uint64_t CallSums::timed() const {
  std::uint64_t calls = 0;
  for (const auto& [latency, sum] : times) calls += sum.count;
  return calls;
}

void CallSums::add(const CallSums& more) {
  began += more.began, untimed += more.untimed, self_unknown += more.self_unknown, unfollowed += more.unfollowed;
  for (const auto& [latency, sum] : more.times) {
    Sum& own = times[latency];
    own.count += sum.count, own.total += sum.total, own.self += sum.self;
  }
}

void CallSums::take_off(const CallSums& earlier) {
  const auto take = [](std::uint64_t& from, std::uint64_t number) { from -= std::min(from, number); };
  take(began, earlier.began), take(untimed, earlier.untimed);
  take(self_unknown, earlier.self_unknown), take(unfollowed, earlier.unfollowed);
  for (const auto& [latency, sum] : earlier.times) {
    Sum& own = times[latency];
    take(own.count, sum.count), take(own.total, sum.total), take(own.self, sum.self);
  }
  std::erase_if(times, [](const auto& one) { return one.second.count == 0; });
}

void add_call_sums(const trace::SumsMemory& memory, CallSums& sums) {
  for (std::uint32_t row = 0; row < memory.row_count; ++row)
    add_row(memory, memory.first[std::uint64_t{row} * memory.stride], row + 1 < memory.row_count, sums);
}

void add_call_sums(const trace::Area& area, std::uint32_t event, CallSums& sums) {
  const auto number = area.sum_of(event);
  for (std::size_t part = 0; number && part < area.live_count(); ++part)
    for (std::uint32_t bank = 0; bank < area.live(part).used_banks(); ++bank)
      add_call_sums(area.live(part).sums(*number, bank), sums);
}

void add_call_sums(const trace::Area& area, std::uint32_t event, Bank bank, CallSums& sums) {
  const auto number = area.sum_of(event);
  if (!number) return;
  const trace::SumsMemory memory = area.live(bank.part).sums(*number, bank.number);
  add_call_sums(memory, sums);
  const shared::SumCell& last = memory.first[std::uint64_t{memory.row_count - 1} * memory.stride].entries;
  sums.untimed += load(shared::loss_of(last, shared::SumLoss::untimed));
  sums.self_unknown += load(shared::loss_of(last, shared::SumLoss::self_unknown));
  sums.unfollowed += load(shared::loss_of(last, shared::SumLoss::unfollowed));
}

}  // namespace uprobe::summary
