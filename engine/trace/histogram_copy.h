// SPDX-License-Identifier: MIT
// A copy of a histogram at one moment, read from memory that the target can write. Nothing in it is trusted: for any contents
// of slots and entries, each entry counts once, and the copy is no larger than the layout.
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
  std::vector<HistogramEntry> entries;  // sorted, each key once; without entries that have no hits
  std::uint64_t dropped = 0;

  std::uint64_t hits() const;
};

HistogramCopy copy_histogram(const HistogramMemory& memory);
// The sum over all live parts.
HistogramCopy copy_histogram(const Area& area, std::size_t number);

// Whether the field of a key is common_pid.
bool is_task(const shared::HistogramField& key);
// Replaces threads of other PID namespaces by the ids that `number_of` returns, and then merges entries with equal keys.
void show_tasks(HistogramCopy& copy, std::span<const shared::HistogramField> keys,
                const std::function<std::uint32_t(const shared::TaskNumber&)>& number_of);

}  // namespace uprobe::trace
