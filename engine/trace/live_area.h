// SPDX-License-Identifier: MIT
// A live file of a session area as the tool uses it. The processes of one trust domain write it, and can change anything in it
// at any moment.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "engine/shared/call_sums.h"
#include "engine/shared/session_area.h"
#include "engine/trace/area_layout.h"

namespace uprobe::trace {

// The memory of a histogram.
struct HistogramMemory {
  const shared::HistogramSlot* slots = nullptr;
  const std::uint8_t* entries = nullptr;
  const std::uint64_t* dropped = nullptr;
  const std::uint32_t* next_entry = nullptr;
  std::uint32_t slot_count = 0, entry_count = 0, key_bytes = 0, sum_count = 0;
};

// The memory of the sums of one function's calls (engine/shared/call_sums.h).
struct SumsMemory {
  const shared::SumRow* first = nullptr;  // of `row_count` rows, `stride` apart; the last one has no CPU
  std::uint32_t row_count = 0, stride = 0;
  const shared::SumCell* chunks = nullptr;
  std::uint32_t chunk_count = 0;
};

class LiveArea {
 public:
  // Makes a fresh file: rings are empty, switches as at the session's beginning.
  static Result<Fd> make(const AreaLayout& layout);
  // Owns descriptor and mapping. `layout` must outlive it.
  LiveArea(const AreaLayout& layout, Fd file) : layout_(layout), file_(std::move(file)) {}
  // Maps the file at offset `at` of `memory`, which has room for it and must outlive it.
  Status map_into(Reservation& memory, std::uint64_t at);
  Status map_alone();  // in memory of its own
  void begin();        // writes the values that are not 0
  // Allocates the pages of the rings that are not there yet, so that no process of the domain ever has to. The pages are the
  // calling process's by then, and lack of memory is its error. Any thread may call it.
  Status allocate();
  bool is_allocated() const { return is_allocated_; }
  std::uint64_t ring_bytes() const { return layout_.live_file_bytes() - layout_.fixed_bytes(); }  // of all rings

  int fd() const { return file_.get(); }
  std::uint64_t inode() const { return inode_; }
  void keep_from_children() const;
  // The mappings by which a process gets it; offsets are those of the area.
  std::vector<MapStep> map_steps() const;

  shared::LiveHeader& header() const { return *table<shared::LiveHeader>(layout_.live); }
  shared::EventCounts& counts(std::uint32_t event) const { return table<shared::EventCounts>(layout_.counts)[event]; }
  shared::Ring& ring(std::uint32_t index) const { return table<shared::Ring>(layout_.rings)[index]; }
  std::uint8_t* data(std::uint32_t ring) const {  // 2 * ring_bytes readable
    return table<std::uint8_t>(layout_.data + 2 * layout_.ring_bytes * ring);
  }
  // Whether a writer is in the middle of a record there, or died there.
  bool is_being_written(std::uint32_t ring) const;
  std::uint64_t dropped(std::uint32_t event) const;  // hits that the event's filter has dropped
  std::uint32_t* switches() const { return table<std::uint32_t>(layout_.switches); }
  std::uint64_t* left() const { return table<std::uint64_t>(layout_.left); }
  shared::HistogramCounts& histogram_counts(std::size_t number) const {
    return table<shared::HistogramCounts>(layout_.histogram_counts)[number];
  }
  HistogramMemory histogram(std::size_t number) const;
  SumsMemory sums(std::uint32_t number, std::uint32_t bank) const;
  // How many banks may have calls: bank 0, and those that were taken. As they say of themselves, they belong to some process.
  std::uint32_t used_banks() const;
  const shared::SumBank& sum_bank(std::uint32_t bank) const;  // bank < used_banks()

 private:
  template <class T>
  T* table(std::uint64_t offset) const {
    return reinterpret_cast<T*>(begin_ + (offset - layout_.live));
  }

  const AreaLayout& layout_;
  Fd file_;
  std::uint64_t inode_ = 0;
  std::atomic<bool> is_allocated_ = false;
  Reservation own_;
  std::uint8_t* begin_ = nullptr;
};

}  // namespace uprobe::trace
