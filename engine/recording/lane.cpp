// SPDX-License-Identifier: MIT
#include "engine/recording/lane.h"

#include <algorithm>

#include "engine/recording/raw_records.h"
#include "engine/recording/words.h"

namespace uprobe::recording {

Result<bool> Lane::next() {
  if (!has_hits() && has_descriptions()) symbols_->clear();
  course_.reset();
  while (!has_hits()) {
    const auto found = next_entry();
    if (!found) return found.error();
    if (!*found) return false;
    if (course_) return true;
  }
  if (!take_hit()) return blocks_->damaged(at_);
  return true;
}

void Lane::end_at(std::uint64_t place) {
  while (!places_.empty() && places_.back().at >= place) places_ = places_.first(places_.size() - 1);
}

// False: there is none.
Result<bool> Lane::next_entry() {
  while (entries_.empty()) {
    if (places_.empty()) return false;
    if (has_descriptions()) symbols_->clear();  // the bytes go
    at_ = places_.front().at;
    RETURN_IF_ERROR(blocks_->read(number_, places_.front(), block_));
    entries_ = block_;
    if (unpacker_) unpacker_->begin_block();
    places_ = places_.subspan(1);
  }
  Parser parser(entries_);
  const auto head = parser.number<EntryHead>();
  const std::string_view bytes = parser.take(head.bytes);
  if (!parser.is_good() || !take(head.kind, bytes)) return blocks_->damaged(at_);
  entries_.remove_prefix(sizeof head + bytes.size());
  return true;
}

// The others have been read before all hits.
bool Lane::take(EntryKind kind, std::string_view bytes) {
  if (kind == EntryKind::hits || (kind == EntryKind::packed && !has_descriptions())) return take_hits(kind, bytes);
  if (kind == EntryKind::mappings) return !has_descriptions() && are_mappings(bytes);
  if (!has_descriptions()) return is_of_course(kind) && take_course(kind, bytes);
  if (kind == EntryKind::symbols) return symbols_->take_names(bytes);
  if (kind == EntryKind::frames) return symbols_->take_frames(bytes);
  return kind == EntryKind::settings || kind == EntryKind::event || kind == EntryKind::totals ||
         kind == EntryKind::clocks;
}

bool Lane::take_hits(EntryKind kind, std::string_view bytes) {
  Parser parser(bytes);
  const auto head = parser.number<HitsHead>();
  if (!parser.is_good() || head.comm_bytes > kCommBytes) return false;
  comm_ = bytes.substr(offsetof(HitsHead, comm), head.comm_bytes);
  record_.tid = head.tid, record_.pid = head.pid;
  const std::string_view records = bytes.substr(sizeof head);
  if (kind == EntryKind::packed) {
    if (!unpacker_) unpacker_ = std::make_unique<Unpacker>();
    return packed_ = records, true;
  }
  hits_ = {reinterpret_cast<const std::uint8_t*>(records.data()), records.size()};
  return true;
}

bool Lane::take_course(EntryKind kind, std::string_view bytes) {
  course_ = course_event(kind, bytes);
  if (course_) time_ = std::max(time_, time_of(*course_));
  return course_.has_value();
}

bool Lane::take_hit() {
  std::span<const std::uint8_t> bytes = hits_;
  if (!packed_.empty()) {
    const auto unpacked = unpacker_->next(packed_);
    if (!unpacked) return false;
    bytes = *unpacked;
  }
  const auto record = first_record(bytes);
  if (!record || record->type() >= events_ || record->stack().size() > shared::kMaxStack) return false;
  if (!hits_.empty()) hits_ = hits_.subspan(record->bytes.size());
  record_.ns = record->head.tsc;
  record_.cpu = record->head.cpu, record_.type = record->type(), record_.flags = record->head.flags;
  record_.payload = record->payload(), record_.stack = record->stack();
  time_ = std::max(time_, record_.ns);
  return true;
}

}  // namespace uprobe::recording
