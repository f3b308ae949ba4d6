// SPDX-License-Identifier: MIT
#include "engine/trace/histogram_copy.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

namespace uprobe::trace {
namespace {

using Words = std::vector<std::uint64_t>;

Words copy_words(const std::uint64_t* from, std::size_t count) {
  Words words;
  for (std::size_t i = 0; i < count; ++i) words.push_back(__atomic_load_n(from + i, __ATOMIC_RELAXED));
  return words;
}

}  // namespace

std::uint64_t HistogramCopy::hits() const {
  std::uint64_t sum = 0;
  for (const HistogramEntry& entry : entries) sum += entry.sums[0];
  return sum;
}

namespace {

using Sums = std::map<Words, Words>;

// Two threads that hit the same key for the first time may have made an entry each.
void add(const HistogramMemory& memory, Sums& sums_of) {
  const std::uint32_t entry_bytes = 8 * memory.sum_count + memory.key_bytes;
  std::vector<bool> seen(memory.entry_count);
  for (std::uint32_t slot = 0; slot < memory.slot_count; ++slot) {
    const auto state = static_cast<std::uint32_t>(__atomic_load_n(memory.slots + slot, __ATOMIC_ACQUIRE));
    const std::uint32_t number = state - shared::kSlotEntry;
    if (state < shared::kSlotEntry || number >= memory.entry_count || seen[number]) continue;
    seen[number] = true;
    const auto* words = reinterpret_cast<const std::uint64_t*>(memory.entries + std::uint64_t{number} * entry_bytes);
    const Words more = copy_words(words, memory.sum_count);
    if (more[0] == 0) continue;  // the thread that made it has not counted its hit
    Words& sums = sums_of[copy_words(words + memory.sum_count, memory.key_bytes / 8)];
    sums.resize(memory.sum_count);
    for (std::uint32_t i = 0; i < memory.sum_count; ++i) sums[i] += more[i];
  }
}

HistogramCopy copy_of(Sums& sums_of, std::uint64_t dropped) {
  HistogramCopy copy{.entries = {}, .dropped = dropped};
  for (auto& [key, sums] : sums_of) copy.entries.push_back({key, std::move(sums)});
  return copy;
}

}  // namespace

HistogramCopy copy_histogram(const HistogramMemory& memory) {
  Sums sums_of;
  add(memory, sums_of);
  return copy_of(sums_of, __atomic_load_n(memory.dropped, __ATOMIC_RELAXED));
}

HistogramCopy copy_histogram(const Area& area, std::size_t number) {
  Sums sums_of;
  std::uint64_t dropped = 0;
  for (std::size_t part = 0; part < area.live_count(); ++part) {
    const HistogramMemory memory = area.histogram(number, part);
    add(memory, sums_of);
    dropped += __atomic_load_n(memory.dropped, __ATOMIC_RELAXED);
  }
  return copy_of(sums_of, dropped);
}

bool is_task(const shared::HistogramField& key) {
  return static_cast<shared::HistogramSource>(key.source) == shared::HistogramSource::number &&
         shared::is_of_task(key.offset, key.size);
}

namespace {

// Groups a value as the agent does (preload/histogram.cpp).
std::uint64_t grouped(const shared::HistogramField& key, std::uint64_t number) {
  switch (static_cast<shared::HistogramGroup>(key.group)) {
    case shared::HistogramGroup::log2:
      return number < 2 ? 0 : std::bit_width(number - 1);
    case shared::HistogramGroup::buckets:
      return key.width == 0 ? number : number - number % key.width;
    case shared::HistogramGroup::log2_parts:
      return shared::log2_part(number, key.width);
    default:
      return number;
  }
}

}  // namespace

void show_tasks(HistogramCopy& copy, std::span<const shared::HistogramField> keys,
                const std::function<std::uint32_t(const shared::TaskNumber&)>& number_of) {
  if (std::ranges::none_of(keys, is_task)) return;
  Sums sums_of;
  for (HistogramEntry& entry : copy.entries) {
    for (const shared::HistogramField& key : keys) {
      std::uint64_t& word = entry.key[key.key_offset / 8];
      const shared::TaskNumber task = shared::task_of_key(word);
      if (is_task(key) && task.is_elsewhere()) word = grouped(key, number_of(task));
    }
    Words& sums = sums_of[entry.key];
    sums.resize(entry.sums.size());
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += entry.sums[i];
  }
  copy = copy_of(sums_of, copy.dropped);
}

}  // namespace uprobe::trace
