// SPDX-License-Identifier: MIT
#include "engine/recording/recorder.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "engine/recording/words.h"
#include "engine/shared/session_area.h"
#include "engine/trace/stack_copy.h"

namespace uprobe::recording {

namespace {

using format::Buffer;
using format::Value;

constexpr std::size_t kMostName = 200;    // as the formats show
constexpr std::size_t kMostKept = 65536;  // mappings of all processes

char* put(char* at, const void* bytes, std::size_t size) {
  if (size != 0) std::memcpy(at, bytes, size);
  return at + size;
}

void add_entry(EntryKind kind, std::string_view bytes, Buffer& out) {
  const EntryHead head{kind, static_cast<std::uint32_t>(bytes.size())};
  char* at = out.room(sizeof head + bytes.size());
  out.end_at(put(put(at, &head, sizeof head), bytes.data(), bytes.size()));
}

// What stands before the records of a task; `bytes`: of the records, for which there is room at the place that it returns.
char* put_heads(EntryKind kind, HitsHead hits, std::string_view comm, std::size_t bytes, Buffer& out) {
  hits.comm_bytes = static_cast<std::uint8_t>(std::min(comm.size(), kCommBytes));
  std::copy_n(comm.begin(), hits.comm_bytes, hits.comm.begin());
  const EntryHead head{kind, static_cast<std::uint32_t>(sizeof hits + bytes)};
  return put(put(out.room(sizeof head + head.bytes), &head, sizeof head), &hits, sizeof hits);
}

std::string_view event_bytes(const program::EventLayout& layout, Writer& writer) {
  writer.text(layout.group).text(layout.event).text(layout.place).text(layout.function);
  writer.number(static_cast<std::uint32_t>(layout.is_return)).number(static_cast<std::uint32_t>(layout.style));
  writer.number(layout.fixed_bytes).number(static_cast<std::uint32_t>(layout.fields.size()));
  for (const program::Field& field : layout.fields) {
    writer.text(field.name).text(field.declared).number(static_cast<std::uint32_t>(field.kind));
    writer.number(std::uint32_t{field.size}).number(field.offset).number(field.count);
    writer.number((field.is_text ? kIsText : 0u) | (field.is_wide ? kIsWide : 0u))
        .number(static_cast<std::uint32_t>(field.of_entry));
  }
  if (!layout.print_format.empty()) writer.text(layout.print_format);
  return writer.bytes();
}

}  // namespace

void Recorder::add(const program::EventLayout& layout) {
  using program::Style;
  Event& event = events_.emplace_back(layout);
  event.shows_caller = layout.style == Style::function || (layout.style != Style::event && layout.is_return);
  event.shows_symbols = event.shows_caller ||
                        std::any_of(layout.fields.begin(), layout.fields.end(),
                                    [](const program::Field& field) { return field.kind == program::Kind::symbol; });
  Writer writer;
  const std::size_t bytes = event_bytes(layout, writer).size();
  described_ += bytes;
  has_too_many_events_ = has_too_many_events_ || bytes > kMostEventBytes || described_ > kMostDescribedBytes;
  if (!has_too_many_events_) ++fitting_;
}

std::string_view Recorder::why_full() const {
  return has_too_many_events_ ? "the events are more than a recording can describe (32 MiB): tracing has ended" : "";
}

void Recorder::open_block(Buffer& out, std::uint32_t lane) {
  if (is_open_ && lane_ == lane) return;
  if (!has_begun_ && lane != 0) open_block(out);  // the settings come first
  close_block(out);
  is_open_ = true;
  lane_ = lane;
  if (lane != 0) packer_.begin_block();
  if (!has_begun_) {
    FileHead head;
    constexpr std::string_view kTool = UPROBE_VERSION;
    std::copy_n(kTool.begin(), std::min(kTool.size(), head.tool.size()), head.tool.begin());
    out.end_at(put(out.room(sizeof head), &head, sizeof head));
  }
  block_ = out.size();
  const BlockHead head;
  out.end_at(put(out.room(sizeof head), &head, sizeof head));
  if (!has_begun_) add_settings(out);
  has_begun_ = true;
}

void Recorder::close_block(Buffer& out) {
  if (!is_open_) return;
  is_open_ = false;
  const std::string_view entries = out.view().substr(block_ + sizeof(BlockHead));
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(entries.data());
  const BlockHead head{
      .bytes = static_cast<std::uint32_t>(entries.size()), .sum = sum_of(bytes, entries.size(), lane_), .lane = lane_};
  out.put_at(block_, &head, sizeof head);
  bytes_ += sizeof head + entries.size();
}

void Recorder::add_settings(Buffer& out) const {
  const std::uint32_t flags = (options_.escape_control ? kEscapes : 0) | (options_.is_short ? kShortLines : 0) |
                              (has_header_ ? kHasHeader : 0) | (options_.symbols != nullptr ? kKnowsSymbols : 0) |
                              (options_.marks_changes ? kMarksChanges : 0);
  Writer writer;
  add_entry(EntryKind::settings, writer.number(flags).number(options_.string_limit).bytes(), out);
}

void Recorder::add_new_events(Buffer& out) {
  for (; written_ < fitting_; ++written_) {
    open_block(out);
    Writer writer;
    add_entry(EntryKind::event, event_bytes(events_[written_].layout, writer), out);
    end_entry(out);
  }
}

void Recorder::append(const trace::EventRecord& record, std::string_view comm, Buffer& out) {
  if (record.type >= fitting_ || record.payload.size() < sizeof(shared::PayloadHead)) return;
  if (written_ < fitting_) add_new_events(out);
  open_block(out);
  const Event& event = events_[record.type];
  if (event.shows_symbols && options_.symbols != nullptr) add_symbols(event, record, out);
  stack_.clear();
  if (!record.stack.empty()) add_stack(record, out);
  add_hit(record, comm, stack_, out);
  end_entry(out);
}

void Recorder::append_run(const trace::RecordRun& run, Buffer& out) {
  add_new_events(out);
  open_block(out, std::min(run.ring + 1, kCourseLane - 1));  // so many rings have no lane of their own
  const HitsHead hits{.tid = run.tid, .pid = run.pid, .count = run.count};
  const std::size_t size = run.records.size(), entry = out.size();
  char* at = put_heads(EntryKind::packed, hits, run.comm, Packer::most(size, run.count), out);
  if (char* const end = packer_.pack(run.records, run.count, at)) {
    const auto packed = static_cast<std::uint32_t>(end - at);
    const std::uint32_t bytes = sizeof hits + packed;
    out.put_at(entry + offsetof(EntryHead, bytes), &bytes, sizeof bytes);
    out.end_at(end);
  } else {
    drop_entry(entry, out);
    at = put_heads(EntryKind::hits, hits, run.comm, size, out);
    out.end_at(put(at, run.records.data(), size));
  }
  end_entry(out);
}

// Of the packer: what it knows of the records of this block is not what a reader will know.
void Recorder::drop_entry(std::size_t entry, Buffer& out) {
  out.end_at(out.view().data() + entry);
  const std::uint32_t lane = lane_;
  close_block(out);
  open_block(out, lane);
}

void Recorder::end_entry(Buffer& out) {
  largest_ = std::max<std::uint64_t>(largest_, out.size() - block_);
  if (out.size() - block_ >= kBlockBytes) close_block(out);
}

void Recorder::add_hit(const trace::EventRecord& record, std::string_view comm, std::span<const std::uint8_t> stack,
                       Buffer& out) const {
  const std::size_t padding = -record.payload.size() % 8;
  const std::size_t bytes = sizeof(shared::RecordHead) + record.payload.size() + padding + stack.size();
  const int flags = stack.empty() ? record.flags & ~shared::kRecordStack : record.flags | shared::kRecordStack;
  const shared::RecordHead head{.length = static_cast<std::uint32_t>(bytes),
                                .number = 0,
                                .tsc = record.ns,
                                .payload_bytes = static_cast<std::uint32_t>(record.payload.size()),
                                .cpu = record.cpu,
                                .flags = static_cast<std::uint16_t>(flags)};
  constexpr std::array<char, 8> kZeros{};
  char* at = put_heads(EntryKind::hits, {.tid = record.tid, .pid = record.pid, .count = 1}, comm, bytes, out);
  at = put(at, &head, sizeof head);
  char* const payload = at;
  at = put(at, record.payload.data(), record.payload.size());
  std::memcpy(payload + offsetof(shared::PayloadHead, type), &record.type, sizeof record.type);
  out.end_at(put(put(at, kZeros.data(), padding), stack.data(), stack.size()));
}

// The names that a line shows, each after its address.
void Recorder::add_symbols(const Event& event, const trace::EventRecord& record, Buffer& out) {
  format::Values values(event, record, options_, padded_);
  Writer writer;
  const auto add = [&](std::uint64_t address) {
    const format::NamedAddress found = options_.symbols->name_of(record, address);
    if (found.name.empty()) return;
    writer.number(address).number(found.distance).number(found.size).text(found.name.substr(0, kMostName));
  };
  if (event.layout.style == program::Style::function)
    add(values.caller() - 1);
  else if (event.shows_caller)
    add(values.return_address() - 1);
  for (const program::Field& field : event.fields())
    for (std::uint32_t i = 0; field.kind == program::Kind::symbol && i < format::elements_of(field); ++i)
      if (const Value value = values.at(field, i); value.kind == Value::Kind::symbol) add(value.number);
  if (!writer.bytes().empty()) add_entry(EntryKind::symbols, writer.bytes(), out);
}

// The frames in their final form, or, if no names are looked up, the frames that the agent has found. The copy of the stack is
// not needed any more.
void Recorder::add_stack(const trace::EventRecord& record, Buffer& out) {
  if (options_.symbols != nullptr) {
    Writer writer;
    for (const format::StackFrame& frame : options_.symbols->frames_of(record)) {
      const format::CodePlace place = options_.symbols->place_of(&record, frame.address - (frame.is_return ? 1 : 0));
      writer.number(frame.address).number(static_cast<std::uint32_t>(frame.is_return));
      writer.number(place.distance)
          .number(place.size)
          .number(place.offset)
          .text(place.name.substr(0, kMostName))
          .text(place.path)
          .text(place.build_id);
    }
    add_entry(EntryKind::frames, writer.bytes(), out);
  }
  const auto stack = trace::parse_stack(record.stack);
  if (!stack) return stack_.assign(sizeof(std::uint64_t), 0);  // no stack either
  shared::StackHead head;
  std::memcpy(&head, record.stack.data(), sizeof head);
  stack_.assign(record.stack.begin(), record.stack.end() - static_cast<std::ptrdiff_t>(stack->bytes.size()));
  head.copy_bytes = 0;
  std::memcpy(stack_.data(), &head, sizeof head);
}

void Recorder::clocks(const trace::ClockReading& reading, Buffer& out) {
  open_block(out);
  Writer writer;
  add_entry(EntryKind::clocks, writer.number(ClocksEntry{reading.ns}).bytes(), out);
  end_entry(out);
}

void Recorder::process(const format::ProcessEvent& event, Buffer&) {
  course_.push_back(course_item(event));
  if (event.kind == format::ProcessEvent::Kind::end) mapped_.erase(event.pid);
}

void Recorder::mappings(const format::ProcessMappings& mappings, Buffer&) {
  add_course_items(mappings, course_);
  if (limit_ != 0) keep(mappings);
}

// All that later files have to repeat, as long as it is not too much.
void Recorder::keep(const format::ProcessMappings& mappings) {
  format::ProcessMappings& all = mapped_[mappings.pid];
  if (mappings.is_all) all = {.pid = mappings.pid, .is_all = true, .files = {}};
  all.ns = mappings.ns;
  all.files.insert(all.files.end(), mappings.files.begin(), mappings.files.end());
  std::size_t kept = 0;
  for (const auto& [pid, process] : mapped_) kept += 1 + process.files.size();
  if (kept > kMostKept) mapped_.clear();
}

void Recorder::loss(const format::LossSoFar& loss, Buffer&) { course_.push_back(course_item(loss)); }

// In order of time, as a lane has to be. What a full file does not hold is for the next one.
void Recorder::add_course(Buffer& out) {
  std::ranges::stable_sort(course_, {}, &CourseItem::ns);
  std::size_t done = 0;
  for (; done < course_.size() && !is_full(); ++done) {
    open_block(out, kCourseLane);
    add_entry(course_[done].kind, course_[done].bytes, out);
    end_entry(out);
  }
  course_.erase(course_.begin(), course_.begin() + static_cast<std::ptrdiff_t>(done));
}

void Recorder::flush(Buffer& out) {
  if (!has_begun_) open_block(out);
  add_new_events(out);
  add_course(out);
  close_block(out);
}

void Recorder::begin_file() {
  has_begun_ = false;
  written_ = 0;
  bytes_ = 0;
  repeat_mappings();
}

// They take a fourth of the file at most, so that each file has room for what is new.
void Recorder::repeat_mappings() {
  std::vector<CourseItem> items;
  for (const auto& [pid, mappings] : mapped_) add_course_items(mappings, items);
  std::uint64_t bytes = 0;
  const auto is_too_much = [&](const CourseItem& item) { return (bytes += item.bytes.size()) > limit_ / 4; };
  items.erase(std::ranges::find_if(items, is_too_much), items.end());
  course_.insert(course_.begin(), items.begin(), items.end());
}

void Recorder::end(std::span<const format::Total> totals, Buffer& out) {
  add_course(out);
  open_block(out);
  Writer writer;
  for (const format::Total& total : totals)
    if (total.lost != 0 || total.missed != 0) writer.text(total.name).number(total.lost).number(total.missed);
  add_entry(EntryKind::totals, writer.bytes(), out);
}

}  // namespace uprobe::recording
