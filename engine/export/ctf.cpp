// SPDX-License-Identifier: MIT
#include "engine/export/ctf.h"

#include <algorithm>

#include "engine/export/files.h"
#include "engine/output/escape.h"
#include "engine/shared/session_area.h"

namespace uprobe::format {

namespace {

// A packet is written beyond this size, or when the reader has no more for the moment.
constexpr std::size_t kPacketBytes = 256 * 1024;
constexpr std::size_t kMostStreams = 8;  // of a processor
constexpr std::uint64_t kPacketHeadBytes = 52;

template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_number(std::string& bytes, std::uint64_t number, std::uint8_t size) {
  bytes.append(reinterpret_cast<const char*>(&number), size);
}

}  // namespace

void CtfFormatter::add(const program::EventLayout& layout) { events_.emplace_back(layout); }

// A string ends at its first NUL.
void CtfFormatter::add_string(std::string& bytes, std::string_view text) const {
  Buffer shown;
  add_text(shown, text.substr(0, text.find('\0')), options_);
  bytes.append(shown.view()).push_back('\0');
}

// The file of the record's processor whose times are not later; null: there are too many.
CtfFormatter::Stream* CtfFormatter::stream_for(const trace::EventRecord& record) {
  if (record.cpu >= kMostCpus) return nullptr;
  if (record.cpu >= streams_.size()) streams_.resize(record.cpu + std::size_t{1});
  std::vector<Stream>& streams = streams_[record.cpu];
  for (Stream& stream : streams)
    if (stream.last <= record.ns) return &stream;
  if (streams.size() == kMostStreams) return nullptr;
  std::string name = "cpu_" + std::to_string(record.cpu);
  if (!streams.empty()) name += "_" + std::to_string(streams.size() + 1);
  return &streams.emplace_back(Stream{.name = std::move(name), .cpu = record.cpu});
}

void CtfFormatter::add_head(Stream& stream, const trace::EventRecord& record, std::uint32_t number,
                            std::string_view comm) {
  if (stream.events.empty()) stream.first = record.ns;
  stream.last = record.ns;
  put(stream.events, number);
  put(stream.events, record.ns);
  put(stream.events, record.pid);
  put(stream.events, record.tid);
  add_string(stream.events, comm);
  const bool is_changed = (record.flags & shared::kRecordChanged) != 0;
  if (options_.marks_changes) put(stream.events, static_cast<std::uint8_t>(is_changed ? 1 : 0));
}

void CtfFormatter::append(const trace::EventRecord& record, std::string_view comm, Buffer&) {
  if (record.type >= events_.size()) return;
  Stream* const stream = stream_for(record);
  if (stream == nullptr) return static_cast<void>(++unwritten_);
  last_ = {.ns = record.ns, .tid = record.tid, .pid = record.pid, .cpu = record.cpu};
  const CtfEvent& event = events_[record.type];
  const bool lacks_entry = (record.flags & shared::kRecordNoEntry) != 0 && event.has_entry_fields();
  add_head(*stream, record, ctf_number(record.type, lacks_entry), comm);
  add_fields(stream->events, event, record);
  if (!record.stack.empty()) add_stack(*stream, record, comm);
  if (stream->events.size() >= kPacketBytes) write_packet(*stream);
}

void CtfFormatter::add_fields(std::string& bytes, const CtfEvent& event, const trace::EventRecord& record) {
  Values values(event, record, options_, padded_);
  put(bytes, values.address());
  if (event.layout.is_return) put(bytes, values.return_address());
  if (event.layout.style == program::Style::function) {
    Buffer caller;
    add_symbol(caller, options_.symbols, record, values.caller() - 1);
    add_string(bytes, caller.view());
  }
  const bool lacks_entry = (record.flags & shared::kRecordNoEntry) != 0;
  for (const program::Field& field : event.fields())
    for (std::uint32_t i = 0; CtfEvent::is_in(field, lacks_entry) && i < elements_of(field); ++i)
      add_value(bytes, field, values.at(field, i), record);
}

void CtfFormatter::add_value(std::string& bytes, const program::Field& field, const Value& value,
                             const trace::EventRecord& record) {
  switch (value.kind) {
    case Value::Kind::floating:
      return value.is_single ? put(bytes, static_cast<float>(value.floating)) : put(bytes, value.floating);
    case Value::Kind::text:
      add_string(bytes, value.text);
      if (value.is_cut) bytes.insert(bytes.size() - 1, "...");
      return;
    case Value::Kind::symbol: {
      Buffer name;
      add_symbol(name, options_.symbols, record, value.number);
      return add_string(bytes, name.view());
    }
    case Value::Kind::fault:
    case Value::Kind::missing:
      return add_string(bytes, "(fault)");
    default:
      if (!value.is_wide) return put_number(bytes, value.number, field.size);
      Buffer digits;
      add_number(digits, value);
      return add_string(bytes, digits.view());
  }
}

void CtfFormatter::add_stack(Stream& stream, const trace::EventRecord& record, std::string_view comm) {
  const std::vector<StackFrame> frames =
      options_.symbols == nullptr ? linked_frames(record) : options_.symbols->frames_of(record);
  add_head(stream, record, kCtfStack, comm);
  put(stream.events, static_cast<std::uint32_t>(frames.size()));
  for (const StackFrame& frame : frames)
    add_string(stream.events, frame_text(options_.symbols, &record, frame.address, frame.is_return));
}

void CtfFormatter::write_packet(Stream& stream) {
  if (stream.events.empty()) return;
  const std::uint64_t bits = 8 * (kPacketHeadBytes + stream.events.size());
  std::string packet;
  put(packet, kCtfMagic), put(packet, std::uint32_t{0});
  put(packet, stream.first), put(packet, stream.last), put(packet, bits), put(packet, bits);
  put(packet, stream.lost), put(packet, stream.cpu);
  options_.files->append(stream.name, packet + stream.events);
  stream.events.clear();
}

void CtfFormatter::write_metadata() {
  std::string text = has_metadata_ ? "" : ctf_preamble(trace::name_of(options_.clock), options_.marks_changes);
  has_metadata_ = true;
  for (; described_ < events_.size(); ++described_)
    text += ctf_description(events_[described_], static_cast<std::uint32_t>(described_));
  if (!text.empty()) options_.files->append("metadata", text);
}

void CtfFormatter::flush(Buffer&) {
  write_metadata();
  for (std::vector<Stream>& streams : streams_)
    for (Stream& stream : streams) write_packet(stream);
}

void CtfFormatter::add_losses(std::span<const Total> totals) {
  std::uint64_t lost = unwritten_;
  for (const Total& total : totals) lost += total.lost;
  const bool has_missed =
      std::any_of(totals.begin(), totals.end(), [](const Total& total) { return total.missed != 0; });
  if (lost == 0 && !has_missed) return;
  Stream& stream = *stream_for(last_);
  const auto add = [&](std::string_view name, std::uint64_t hits, std::uint64_t returns) {
    add_head(stream, last_, kCtfLost, "");
    add_string(stream.events, name);
    put(stream.events, hits), put(stream.events, returns);
  };
  for (const Total& total : totals)
    if (total.lost != 0 || total.missed != 0) add(total.name, total.lost, total.missed);
  if (unwritten_ != 0) add("(out of order)", unwritten_, 0);
  stream.lost = lost;
  write_packet(stream);
}

void CtfFormatter::end(std::span<const Total> totals, Buffer& out) {
  flush(out);
  add_losses(totals);
}

}  // namespace uprobe::format
