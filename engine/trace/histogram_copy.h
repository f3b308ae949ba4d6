// What a histogram holds at a moment, read out of memory that the target writes. Nothing in it is trusted: whatever slots and
// entries say, each entry counts once, and the copy is no larger than what was laid out.
#pragma once

#include <cstdint>
#include <vector>

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

}  // namespace uprobe::trace
