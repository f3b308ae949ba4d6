// SPDX-License-Identifier: MIT
#include "engine/trace/live_area.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

namespace uprobe::trace {

// F_SEAL_SEAL keeps a process from adding seals that would stop others from mapping the file later.
Result<Fd> LiveArea::make(const AreaLayout& layout) {
  auto file = make_file("uprobe-session-live", layout.live_file_bytes(), layout.fixed_bytes());
  if (file && ::fcntl(file->get(), F_ADD_SEALS, F_SEAL_SEAL) != 0) return system_error("seal the session area", errno);
  return file;
}

Status LiveArea::map_into(Reservation& memory, std::uint64_t at) {
  struct stat status {};
  if (::fstat(fd(), &status) != 0) return system_error("fstat of the session area", errno);
  inode_ = status.st_ino;
  for (MapStep step : map_steps()) {
    step.offset += at - layout_.live;
    RETURN_IF_ERROR(memory.map(step));
  }
  begin_ = memory.base() + at;
  return ok();
}

Status LiveArea::map_alone() {
  RETURN_IF_ERROR(own_.reserve(layout_.live_span()));
  return map_into(own_, 0);
}

Status LiveArea::allocate() {
  if (is_allocated_) return ok();
  RETURN_IF_ERROR(allocate_pages(fd(), layout_.live_file_bytes()));
  is_allocated_ = true;
  return ok();
}

void LiveArea::begin() {
  std::ranges::copy(layout_.limits, left());
  std::ranges::copy(layout_.states, switches());
}

void LiveArea::keep_from_children() const {
  if (own_.base() != nullptr) own_.keep_from_children();
}

// The second mapping of a ring and the first of the next one are neighbours in the file as well.
std::vector<MapStep> LiveArea::map_steps() const {
  const std::uint64_t start = layout_.data, bytes = layout_.ring_bytes, in_file = start - layout_.live;
  std::vector<MapStep> steps{
      {.offset = layout_.live, .length = in_file + bytes, .file_offset = 0, .fd = fd(), .writable = true}};
  for (std::uint64_t ring = 0; ring < layout_.ring_count; ++ring) {
    const bool is_last = ring + 1 == layout_.ring_count;
    steps.push_back({.offset = start + (2 * ring + 1) * bytes,
                     .length = is_last ? bytes : 2 * bytes,
                     .file_offset = in_file + ring * bytes,
                     .fd = fd(),
                     .writable = true});
  }
  return steps;
}

bool LiveArea::is_being_written(std::uint32_t index) const {
  shared::Ring& words = ring(index);
  if (index >= layout_.cpu_ring_count) return std::atomic_ref(words.owner).load(std::memory_order_acquire) != 0;
  const std::uint32_t begun = std::atomic_ref(words.begun).load(std::memory_order_acquire);
  return begun != static_cast<std::uint32_t>(std::atomic_ref(words.commit).load(std::memory_order_acquire));
}

std::uint64_t LiveArea::dropped(std::uint32_t event) const {
  std::uint64_t sum = 0;
  for (std::uint64_t row = 0; row < 2 * layout_.dropped_rows; ++row) {
    auto* counts = table<std::uint64_t>(layout_.dropped + row * layout_.dropped_stride);
    sum += std::atomic_ref(counts[event]).load(std::memory_order_relaxed);
  }
  return sum;
}

HistogramMemory LiveArea::histogram(std::size_t number) const {
  const AreaLayout::Map& map = layout_.maps[number];
  shared::HistogramCounts& counts = histogram_counts(number);
  return {.slots = table<shared::HistogramSlot>(map.slots),
          .entries = table<std::uint8_t>(map.entries),
          .dropped = &counts.dropped,
          .next_entry = &counts.next_entry,
          .slot_count = map.slot_count,
          .entry_count = map.entry_count,
          .key_bytes = map.key_bytes,
          .sum_count = map.sum_count};
}

SumsMemory LiveArea::sums(std::uint32_t number, std::uint32_t bank) const {
  const std::uint64_t rows_before = std::uint64_t{bank} * layout_.sum_rows * layout_.sum_count;
  return {.first = table<shared::SumRow>(layout_.sums + sizeof(shared::SumsHead)) + rows_before + number,
          .row_count = layout_.sum_rows,
          .stride = layout_.sum_count,
          .chunks = table<shared::SumCell>(layout_.sum_chunks),
          .chunk_count = layout_.chunk_count};
}

std::uint32_t LiveArea::used_banks() const {
  if (layout_.sum_count == 0) return 0;
  const std::uint32_t taken =
      std::atomic_ref(table<shared::SumsHead>(layout_.sums)->next_bank).load(std::memory_order_acquire);
  return std::min(taken, layout_.bank_count - 1) + 1;
}

const shared::SumBank& LiveArea::sum_bank(std::uint32_t bank) const {
  return table<shared::SumBank>(layout_.sum_banks)[bank];
}

}  // namespace uprobe::trace
