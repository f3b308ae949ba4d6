// SPDX-License-Identifier: MIT
#include "engine/export/trace_dat.h"

#include <algorithm>

#include "engine/export/files.h"
#include "engine/export/identifiers.h"
#include "engine/output/escape.h"

namespace uprobe::format {

namespace {

constexpr std::size_t kMostForeign = 4096;  // names, which hostile files have
constexpr const char* kForeignGroup = "merged";

std::uint64_t lost_hits(std::span<const Total> totals) {
  std::uint64_t lost = 0;
  for (const Total& total : totals) lost += total.lost;
  return lost;
}

}  // namespace

bool TraceDatFormatter::has_id(RawEvent& event, RawEvent::Form form) {
  if (event.id(form) != 0) return true;
  event.id(form) = head_.next_id();
  if (event.id(form) == 0) return false;
  head_.add_format(event.group(), event.format_file(form));
  return true;
}

// Also events without a hit have a format, so that filters can name them.
void TraceDatFormatter::add(const program::EventLayout& layout) { has_id(events_.emplace_back(layout), {}); }

void TraceDatFormatter::append(const trace::EventRecord& record, std::string_view comm, Buffer&) {
  if (record.type >= events_.size()) return;
  RawEvent& event = events_[record.type];
  const bool is_possible = record.cpu < kMostCpus && has_id(event, event.form_of(record));
  const std::string_view bytes = is_possible ? event.encode(record, options_) : std::string_view();
  if (bytes.empty()) return static_cast<void>(++unwritten_);
  head_.name_task(record.tid, comm);
  add_record(record, bytes);
  if (!record.stack.empty()) add_stack(record);
}

void TraceDatFormatter::add_record(const trace::EventRecord& record, std::string_view bytes) {
  if (record.cpu >= open_.size()) open_.resize(record.cpu + std::size_t{1});
  last_ = {.ns = record.ns, .tid = record.tid, .cpu = record.cpu};
  if (open_[record.cpu].add(record.ns, bytes)) return;
  write_page(record.cpu);
  open_[record.cpu].add(record.ns, bytes);
}

void TraceDatFormatter::add_stack(const trace::EventRecord& record) {
  Buffer text;
  for (const StackFrame& frame :
       options_.symbols == nullptr ? linked_frames(record) : options_.symbols->frames_of(record)) {
    text.add("\n => ");
    add_text(text, frame_text(options_.symbols, &record, frame.address, frame.is_return), options_);
  }
  add_record(record, text_record(TraceDatHead::user_stack, record.tid, text.view()));
}

// Those of too many names have one name together.
std::uint16_t TraceDatFormatter::foreign_id(std::string_view name) {
  std::string shown = identifier(name);
  if (foreign_.size() >= kMostForeign && !foreign_.contains(shown)) shown = "_";
  const auto [found, is_new] = foreign_.try_emplace(shown, 0);
  if (is_new) found->second = head_.next_id();
  if (is_new && found->second != 0) head_.add_format(kForeignGroup, text_event_format(shown, found->second));
  return found->second;
}

// A time that goes back, which a hostile file may have, would begin a page each time.
void TraceDatFormatter::foreign(const ForeignEvent& event, Buffer&) {
  const std::uint16_t id = event.cpu < kMostCpus ? foreign_id(event.name) : std::uint16_t{0};
  if (id == 0) return static_cast<void>(++unwritten_);
  head_.name_task(event.tid, event.comm);
  add_record({.ns = std::max(event.ns, last_.ns), .tid = event.tid, .cpu = static_cast<std::uint16_t>(event.cpu)},
             text_record(id, event.tid, event.text));
}

void TraceDatFormatter::write_page(std::uint32_t cpu, std::uint64_t lost) {
  if (open_[cpu].is_empty()) return;
  pages_.add(cpu, open_[cpu].finish(lost));
  open_[cpu].clear();
}

// On a page of their own, where the last record was.
void TraceDatFormatter::add_losses(std::span<const Total> totals) {
  const std::uint64_t lost = lost_hits(totals) + unwritten_;
  const trace::EventRecord place = last_;
  if (unwritten_ != 0) add_record(place, lost_record("(too large for trace.dat)", unwritten_, 0));
  for (const Total& total : totals)
    if (total.lost != 0 || total.missed != 0)
      add_record(place, lost_record(escaped(total.name), total.lost, total.missed));
  if (!open_.empty()) write_page(place.cpu, lost);
}

void TraceDatFormatter::end(std::span<const Total> totals, Buffer&) {
  for (std::uint32_t cpu = 0; cpu < open_.size(); ++cpu) write_page(cpu);
  add_losses(totals);
  write_head();
}

// The positions have the same number of bytes whatever they are.
void TraceDatFormatter::write_head() {
  const std::string_view clock = trace::name_of(options_.clock);
  const std::size_t bytes = head_.bytes(clock, pages_.parts(0)).size();
  pages_.sort(bytes);
  options_.files->write_at(0, head_.bytes(clock, pages_.parts(bytes)));
}

}  // namespace uprobe::format
