// SPDX-License-Identifier: MIT
#include "engine/output/json.h"

#include <algorithm>
#include <cmath>

#include "engine/output/json_text.h"
#include "engine/shared/session_area.h"

namespace uprobe::format {

namespace {

// A larger integer is a string: many readers keep numbers as doubles.
constexpr std::uint64_t kMostExact = std::uint64_t{1} << 53;

std::string json_of(std::string_view text) {
  Buffer out;
  add_json_text(out, text);
  return std::string(out.view());
}

void add_unsigned(Buffer& out, std::uint64_t number) {
  add_number(out, {.kind = Value::Kind::unsigned_decimal, .number = number});
}

void add_integer(Buffer& out, const Value& value) {
  const bool is_signed = value.kind == Value::Kind::signed_decimal;
  const bool is_negative = is_signed && static_cast<std::int64_t>(value.number) < 0;
  const std::uint64_t amount = is_negative ? -value.number : value.number;
  if (amount > kMostExact) out.add("\"");
  add_number(out, {.kind = is_signed ? value.kind : Value::Kind::unsigned_decimal, .number = value.number});
  if (amount > kMostExact) out.add("\"");
}

void add_address(Buffer& out, std::uint64_t address) {
  add_number(out, {.kind = Value::Kind::hex, .number = address});
  out.add("\"");
}

// Once in a list, also where several elements have it.
void note(std::vector<std::string_view>& list, std::string_view name) {
  if (list.empty() || list.back() != name) list.push_back(name);
}

}  // namespace

void JsonFormatter::add(const program::EventLayout& layout) {
  Event& event = events_.emplace_back(layout);
  event.names = ",\"group\":" + json_of(layout.group) + ",\"event\":" + json_of(layout.event) + ",\"address\":\"";
  for (const program::Field& field : event.fields()) event.names_of_fields.push_back(json_of(field.name) + ":");
}

void JsonFormatter::append(const trace::EventRecord& record, std::string_view comm, Buffer& out) {
  if (record.type >= events_.size()) return;
  const Event& event = events_[record.type];
  Values values(event, record, options_, padded_);
  cut_.clear(), escaped_.clear();
  out.add("{\"time\":");
  add_time(out, record.ns);
  out.add(",\"cpu\":");
  add_unsigned(out, record.cpu);
  out.add(",\"pid\":");
  record.pid == 0 ? out.add("null") : add_unsigned(out, record.pid);
  out.add(",\"tid\":");
  add_unsigned(out, record.tid);
  out.add(",\"comm\":");
  const bool has_escaped_name = add_json_text(out, comm);
  add_place(event, values, record, out);
  add_arguments(event, values, record, out);
  if (!record.stack.empty()) add_stack(record, out);
  add_names(",\"cut\":[", cut_, out);
  add_names(",\"escaped\":[", escaped_, out);
  out.add(has_escaped_name ? ",\"escaped_comm\":true}\n" : "}\n");
}

void JsonFormatter::add_place(const Event& event, const Values& values, const trace::EventRecord& record,
                              Buffer& out) const {
  out.add(event.names);
  add_address(out, values.address());
  if (event.layout.is_return) {
    out.add(",\"return_address\":\"");
    add_address(out, values.return_address());
  }
  if (event.layout.style != program::Style::function) return;
  Buffer caller;
  add_symbol(caller, options_.symbols, record, values.caller() - 1);
  out.add(",\"caller\":");
  add_json_text(out, caller.view());
}

void JsonFormatter::add_arguments(const Event& event, Values& values, const trace::EventRecord& record, Buffer& out) {
  out.add(",\"args\":{");
  bool is_first = true;
  for (std::size_t i = 0; i < event.names_of_fields.size(); ++i) {
    const program::Field& field = event.fields()[i];
    if (field.of_entry && (record.flags & shared::kRecordNoEntry) != 0) continue;
    if (!is_first) out.add(",");
    is_first = false;
    out.add(event.names_of_fields[i]);
    add_field(field, values, record, out);
  }
  out.add("}");
}

void JsonFormatter::add_field(const program::Field& field, Values& values, const trace::EventRecord& record,
                              Buffer& out) {
  if (field.count == 0 || field.is_text) return add_value(field, values.at(field), record, out);
  for (std::uint32_t i = 0; i < field.count; ++i) {
    out.add(i == 0 ? "[" : ",");
    add_value(field, values.at(field, i), record, out);
  }
  out.add("]");
}

void JsonFormatter::add_value(const program::Field& field, const Value& value, const trace::EventRecord& record,
                              Buffer& out) {
  switch (value.kind) {
    case Value::Kind::unsigned_decimal:
    case Value::Kind::signed_decimal:
    case Value::Kind::hex:
      return add_integer(out, value);
    case Value::Kind::floating: {
      const bool is_finite = std::isfinite(value.floating);
      if (!is_finite) out.add("\"");
      add_number(out, value);
      return is_finite ? void() : out.add("\"");
    }
    case Value::Kind::text:
      if (add_json_text(out, value.text)) note(escaped_, field.name);
      if (value.is_cut) note(cut_, field.name);
      return;
    case Value::Kind::symbol: {
      Buffer name;
      add_symbol(name, options_.symbols, record, value.number);
      if (add_json_text(out, name.view())) note(escaped_, field.name);
      return;
    }
    case Value::Kind::fault:
    case Value::Kind::missing:
      return out.add("null");
  }
}

void JsonFormatter::add_stack(const trace::EventRecord& record, Buffer& out) const {
  bool is_first = true;
  for (const StackFrame& frame :
       options_.symbols == nullptr ? linked_frames(record) : options_.symbols->frames_of(record)) {
    out.add(is_first ? ",\"stack\":[" : ",");
    is_first = false;
    add_json_text(out, frame_text(options_.symbols, &record, frame.address, frame.is_return));
  }
  out.add(is_first ? ",\"stack\":[]" : "]");
}

void JsonFormatter::add_names(std::string_view key, const std::vector<std::string_view>& names, Buffer& out) {
  if (names.empty()) return;
  out.add(key);
  for (const std::string_view name : names) {
    if (name.data() != names.front().data()) out.add(",");
    add_json_text(out, name);
  }
  out.add("]");
}

void JsonFormatter::end(std::span<const Total> totals, Buffer& out) {
  for (const Total& total : totals) {
    if (total.lost == 0 && total.missed == 0) continue;
    out.add("{\"type\":\"lost\",\"name\":");
    add_json_text(out, total.name);
    out.add(",\"hits\":");
    add_unsigned(out, total.lost);
    out.add(",\"returns\":");
    add_unsigned(out, total.missed);
    out.add("}\n");
  }
}

}  // namespace uprobe::format
