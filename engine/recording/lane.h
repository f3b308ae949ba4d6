// SPDX-License-Identifier: MIT
// One lane of a recording: its hits, and its part of the course of the session, one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/recording/blocks.h"
#include "engine/recording/course_entries.h"
#include "engine/recording/packing.h"
#include "engine/recording/saved_symbols.h"
#include "engine/trace/event_record.h"

namespace uprobe::recording {

class Lane {
 public:
  // All must outlive it. `events`: how many there are. `symbols`: gets what is noted for the present hit.
  Lane(const Blocks& blocks, std::uint32_t number, std::span<const BlockPlace> places, std::uint32_t events,
       SavedSymbols& symbols)
      : blocks_(&blocks), symbols_(&symbols), places_(places), number_(number), events_(events) {}

  // Goes to the next hit, or event of the course. False: there is none.
  Result<bool> next();
  // Blocks from this place of the file on are not read.
  void end_at(std::uint64_t place);
  // Null: it is at a hit.
  const CourseEvent* course() const { return course_ ? &*course_ : nullptr; }
  const trace::EventRecord& record() const { return record_; }
  std::string_view comm() const { return comm_; }
  // The time by which the hit is merged: never less than that of the hit before it.
  std::uint64_t time() const { return time_; }
  // Of its block in the file, or of the block that could not be read. The order of hits of one time.
  std::uint64_t place() const { return at_; }

 private:
  bool has_descriptions() const { return number_ == 0; }
  Result<bool> next_entry();
  bool take(EntryKind kind, std::string_view bytes);
  bool take_hits(EntryKind kind, std::string_view bytes);
  bool has_hits() const { return !hits_.empty() || !packed_.empty(); }
  bool take_hit();
  bool take_course(EntryKind kind, std::string_view bytes);

  const Blocks* blocks_;
  SavedSymbols* symbols_;
  std::span<const BlockPlace> places_;  // not yet read
  std::uint32_t number_, events_;
  std::string block_;
  std::string_view entries_;            // of the block, not yet read
  std::span<const std::uint8_t> hits_;  // of the entry, likewise
  std::string_view packed_;             // likewise: one of them is empty
  std::unique_ptr<Unpacker> unpacker_;  // from the first packed hits on
  std::uint64_t at_ = 0, time_ = 0;
  trace::EventRecord record_;
  std::string_view comm_;
  std::optional<CourseEvent> course_;
};

}  // namespace uprobe::recording
