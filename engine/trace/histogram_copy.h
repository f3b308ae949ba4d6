// SPDX-License-Identifier: MIT
// What a histogram holds at a moment, read out of memory that the target writes. Nothing in it is trusted: whatever slots and
// entries say, each entry counts once, and the copy is no larger than what was laid out.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/shared/histogram.h"
#include "engine/shared/task_number.h"
#include "engine/trace/area.h"

namespace uprobe::trace {

struct HistogramEntry {
  std::vector<std::uint64_t> key;   // words, as engine/shared/histogram.h lays them out
  std::vector<std::uint64_t> sums;  // the count of hits first
};

struct HistogramCopy {
  std::vector<HistogramEntry> entries;  // each key once, in the order of keys; no hits, no entry
  std::uint64_t dropped = 0;

  std::uint64_t hits() const;
};

HistogramCopy copy_histogram(const HistogramMemory& memory);
// Of all live parts together.
HistogramCopy copy_histogram(const Area& area, std::size_t number);

// Whether a word of a key is common_pid.
bool is_task(const shared::HistogramField& key);
// Threads of other PID namespaces get the numbers that `number_of` says; entries that have the same key then are one.
void show_tasks(HistogramCopy& copy, std::span<const shared::HistogramField> keys,
                const std::function<std::uint32_t(const shared::TaskNumber&)>& number_of);

}  // namespace uprobe::trace
