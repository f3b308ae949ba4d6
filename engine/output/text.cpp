// SPDX-License-Identifier: MIT
// Prints records as ftrace does; see text.h.
#include "engine/output/text.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "engine/output/conversion.h"
#include "engine/output/digits.h"
#include "engine/output/escape.h"
#include "engine/shared/session_area.h"

namespace uprobe::format {

namespace {

using program::Kind;
using program::Style;

constexpr std::string_view kHeader =
    "# tracer: nop\n"
    "#\n"
    "#                                _-----=> irqs-off/BH-disabled\n"
    "#                               / _----=> need-resched\n"
    "#                              | / _---=> hardirq/softirq\n"
    "#                              || / _--=> preempt-depth\n"
    "#                              ||| / _-=> migrate-disable\n"
    "#                              |||| /     delay\n"
    "#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n"
    "#              | |         |   |||||     |         |\n";

constexpr std::size_t kTaskColumns = 16, kTidWidth = 7;
constexpr std::uint32_t kFuncOffset = 8, kReturnIpOffset = 16;
// Room for all but the fields: cpu, flags, time, two addresses, punctuation, and the bytes that put_hex and pieces write beyond
// their end.
constexpr std::size_t kLineOverhead = 192;
// The most characters of a function's name that a line shows, and the room for what surrounds it.
constexpr std::size_t kSymbolName = 200, kSymbolBytes = kMostEscaped * kSymbolName + 64;
constexpr std::size_t kSecondBytes = 5 + 8 + 20 + 1;  // cpu, flags, seconds, point
// A value of N bytes prints as at most N times this many characters: a string's locator as "(fault)," or two quotes, three dots
// and a comma, a character as '\x00',.
constexpr std::size_t kExpansion = 8;

constexpr std::string_view kMissing = "(missing)";
constexpr std::string_view kChanged = " (changed)";  // after the fields

template <class T>
T load_from(const std::uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// For names and punctuation: most have a few bytes, for which a call of memcpy costs more than the copying.
char* put(char* at, std::string_view text) {
  const std::size_t size = text.size();
  if (size > 16 && size <= 32) {
    __m128i ends[2];
    std::memcpy(ends, text.data(), 16);
    std::memcpy(ends + 1, text.data() + size - 16, 16);
    std::memcpy(at, ends, 16);
    std::memcpy(at + size - 16, ends + 1, 16);
  } else if (size >= 8 && size <= 16) {
    std::uint64_t ends[2];
    std::memcpy(ends, text.data(), 8);
    std::memcpy(ends + 1, text.data() + size - 8, 8);
    std::memcpy(at, ends, 8);
    std::memcpy(at + size - 8, ends + 1, 8);
  } else if (size >= 4 && size < 8) {
    std::uint32_t ends[2];
    std::memcpy(ends, text.data(), 4);
    std::memcpy(ends + 1, text.data() + size - 4, 4);
    std::memcpy(at, ends, 4);
    std::memcpy(at + size - 4, ends + 1, 4);
  } else {
    std::memcpy(at, text.data(), size);
  }
  return at + size;
}

std::uint64_t load_unsigned(const std::uint8_t* at, std::uint8_t size) {
  if (size == 8) return load_from<std::uint64_t>(at);
  if (size == 4) return load_from<std::uint32_t>(at);
  if (size == 2) return load_from<std::uint16_t>(at);
  return *at;
}

std::int64_t load_signed(const std::uint8_t* at, std::uint8_t size) {
  if (size == 8) return load_from<std::int64_t>(at);
  if (size == 4) return load_from<std::int32_t>(at);
  if (size == 2) return load_from<std::int16_t>(at);
  return load_from<std::int8_t>(at);
}

// "CPU] ..... SECONDS.", %03d and %5lu.
char* put_cpu_and_seconds(char* at, std::uint16_t cpu, std::uint64_t seconds, bool is_short) {
  for (std::uint16_t bound = 100; bound > 1 && cpu < bound; bound = static_cast<std::uint16_t>(bound / 10)) *at++ = '0';
  at = put(put_decimal(at, cpu), is_short ? "] " : "] ..... ");
  for (std::uint64_t bound = 10'000; bound > 1 && seconds < bound; bound /= 10) *at++ = ' ';
  at = put_decimal(at, seconds);
  *at++ = '.';
  return at;
}

// The shortest digits that identify this number.
char* put_floating(char* at, const std::uint8_t* value, std::uint8_t size) {
  constexpr std::size_t kRoom = 32;  // 24 characters at most
  return size == 4 ? std::to_chars(at, at + kRoom, load_from<float>(value)).ptr
                   : std::to_chars(at, at + kRoom, load_from<double>(value)).ptr;
}

// "function+4" -> "function"
std::string_view name_in(std::string_view place) { return place.substr(0, place.rfind('+')); }

// "(0xIP)" or "(0xRET <- 0xFUNC)", of which the prefix has already printed "(0x".
char* put_addresses(char* at, bool is_return, const std::uint8_t* payload) {
  if (is_return) {
    at = put_hex(at, load_from<std::uint64_t>(payload + kReturnIpOffset));
    at = put(at, " <- 0x");
  }
  at = put_hex(at, load_from<std::uint64_t>(payload + kFuncOffset));
  *at++ = ')';
  return at;
}

}  // namespace

TextFormatter::TextFormatter(std::span<const program::EventLayout> layouts, Options options) : options_(options) {
  events_.reserve(layouts.size());
  for (const program::EventLayout& layout : layouts) add(layout);
}

TextFormatter::Piece::Piece(std::string_view text)
    : long_text(text.size() > sizeof bytes ? text : ""), size(text.size()) {
  if (long_text.empty()) std::copy(text.begin(), text.end(), bytes.begin());
}

// Always overwrites sizeof bytes.
char* TextFormatter::Piece::put_to(char* at) const {
  if (size > sizeof bytes) return put(at, long_text);
  std::memcpy(at, bytes.data(), sizeof bytes);
  return at + size;
}

TextFormatter::EventPlan TextFormatter::plan_event(const program::EventLayout& layout) const {
  EventPlan plan;
  plan.style = layout.style;
  plan.is_return = layout.is_return;
  plan_place(layout, plan);
  plan.needed = std::max<std::uint32_t>(layout.fixed_bytes, layout.is_return ? kReturnIpOffset + 8 : kFuncOffset + 8);
  plan.line_bytes = plan.prefix.size + plan.middle.size + kLineOverhead;
  // The first field is the return address, which a function event shows at the beginning.
  const std::size_t first = layout.style == Style::function ? 1 : 0;
  for (std::size_t i = first; i < layout.fields.size(); ++i) plan_field(layout.fields[i], i == first, plan);
  if (layout.style != Style::event) plan.line_bytes += kSymbolBytes;
  if (layout.style == Style::event && !layout.print_format.empty()) plan_format(layout, plan);
  return plan;
}

// By the event's own format, if that has a conversion for each field.
void TextFormatter::plan_format(const program::EventLayout& layout, EventPlan& plan) {
  auto format = spec::read_print_format(layout.print_format);
  if (!format || format->conversions.size() != plan.fields.size()) return;
  const auto piece = [&](std::string text) {
    plan.line_bytes += text.size();
    return Piece(text);
  };
  for (std::size_t i = 0; i < plan.fields.size(); ++i) {
    spec::Conversion& conversion = format->conversions[i];
    plan.fields[i].prefix = piece((i == 0 ? " " : "") + escaped(conversion.before));
    plan.line_bytes += kConvertedBytes;
    plan.fields[i].is_bare = true;
    plan.fields[i].conversion = std::move(conversion);
  }
  const std::string after = escaped(format->after);
  plan.after = piece((plan.fields.empty() && !after.empty() ? " " : "") + after);
}

// Names of functions come from a file, and may contain any bytes.
std::string TextFormatter::shown(const std::string& name) const {
  return options_.escape_control ? escaped(name) : name;
}

void TextFormatter::plan_place(const program::EventLayout& layout, EventPlan& plan) const {
  const std::string place = shown(layout.place.empty() ? layout.event : layout.place);
  switch (layout.style) {
    case Style::event:
      plan.prefix = Piece(": " + shown(layout.event) + ": (0x");
      break;
    case Style::kprobes_2009:
      plan.prefix = Piece(layout.is_return ? ": " : ": " + std::string(name_in(place)) + ": @" + place);
      plan.middle = Piece(layout.is_return ? ": <-" + place : "");
      break;
    case Style::function:
      plan.prefix = Piece(": ");
      plan.middle = Piece("->" + place + "(");
      break;
  }
}

void TextFormatter::plan_field(const program::Field& field, bool is_first, EventPlan& plan) const {
  const std::uint32_t elements = std::max<std::uint32_t>(field.count, 1);
  const bool is_array = field.count != 0 && !field.is_wide;
  const bool is_number = !is_array && field.kind == Kind::hex && !field.of_entry;
  const std::string name = shown(field.name);
  std::string prefix = " " + name + "=";
  if (plan.style == Style::kprobes_2009) prefix = " ";
  if (plan.style == Style::function)
    prefix = (is_first ? "" : ", ") + name + "=";
  else
    prefix += is_array && !field.is_text ? "{" : is_number ? "0x" : "";
  plan.fields.push_back({.prefix = Piece(prefix),
                         .kind = field.kind,
                         .size = field.size,
                         .offset = field.offset,
                         .elements = elements,
                         .is_array = is_array,
                         .is_bare = plan.style == Style::function,
                         .is_text = field.is_text,
                         .is_wide = field.is_wide,
                         .of_entry = field.of_entry});
  plan.needed = std::max(plan.needed, field.offset + field.size * elements);
  const std::size_t element_bytes = field.kind == Kind::symbol ? kSymbolBytes : kExpansion * field.size;
  plan.line_bytes +=
      plan.fields.back().prefix.size + element_bytes * elements + sizeof "{}" + (field.of_entry ? kMissing.size() : 0);
}

void TextFormatter::header(Buffer& out) { out.add(kHeader); }

char* TextFormatter::put_text(char* at, std::string_view text) const {
  return options_.escape_control ? put_escaped(at, text) : put(at, text);
}

// "%16s-%-7d [", up to the CPU.
const std::string& TextFormatter::task_text(std::uint32_t tid, std::string_view comm) {
  TaskPlan& task = tasks_[tid % tasks_.size()];
  if (task.tid == tid && task.comm == comm && !task.text.empty()) return task.text;
  std::string shown(kMostEscaped * comm.size(), '\0');
  shown.resize(static_cast<std::size_t>(put_text(shown.data(), comm) - shown.data()));
  std::string number = std::to_string(static_cast<std::int32_t>(tid));
  number.resize(std::max(number.size(), kTidWidth), ' ');
  task.text.assign(kTaskColumns - std::min(shown.size(), kTaskColumns), ' ');
  task.text += shown + "-" + number + " [";
  task.tid = tid;
  task.comm = comm;
  return task.text;
}

void TextFormatter::append(const trace::EventRecord& record, std::string_view comm, Buffer& out) {
  if (record.type >= events_.size()) return;
  const EventPlan& event = events_[record.type];
  std::span<const std::uint8_t> bytes = record.payload;
  if (bytes.size() < event.needed) {
    padded_.assign(event.needed, 0);
    std::copy(bytes.begin(), bytes.end(), padded_.begin());
    bytes = padded_;
  }
  const std::string& task = task_text(record.tid, comm);
  char* at = put(out.room(task.size() + event.line_bytes + kMostEscaped * bytes.size() + kChanged.size()), task);
  at = put_cpu_and_time(at, record.cpu, record.ns);
  const auto size = static_cast<std::uint32_t>(bytes.size());
  Payload payload{.bytes = bytes.data(), .size = size, .fixed = event.needed, .string_budget = size, .record = &record};
  at = put_place(at, event, payload);
  for (const FieldPlan& field : event.fields) at = put_field(at, field, payload);
  if (event.style == Style::function) *at++ = ')';
  at = event.after.put_to(at);
  if ((record.flags & shared::kRecordChanged) != 0) at = put(at, kChanged);
  *at++ = '\n';
  out.end_at(at);
  if (!record.stack.empty()) append_stack(record, comm, out);
}

void TextFormatter::append_stack(const trace::EventRecord& record, std::string_view comm, Buffer& out) {
  const std::string& task = task_text(record.tid, comm);
  char* at = put(out.room(task.size() + kLineOverhead), task);
  out.end_at(put(put_cpu_and_time(at, record.cpu, record.ns), ": <user stack trace>\n"));
  for (const StackFrame& frame :
       options_.symbols == nullptr ? linked_frames(record) : options_.symbols->frames_of(record)) {
    const std::string text = frame_text(options_.symbols, &record, frame.address, frame.is_return);
    at = put(out.room(kMostEscaped * text.size() + kLineOverhead), " => ");
    out.end_at(put(put_text(at, text), "\n"));
  }
}

char* TextFormatter::put_place(char* at, const EventPlan& event, const Payload& payload) const {
  at = event.prefix.put_to(at);
  if (event.style == Style::event) return put_addresses(at, event.is_return, payload.bytes);
  const bool has_caller = event.style == Style::function || event.is_return;
  const std::uint32_t caller =
      event.style == Style::function && event.is_return ? kReturnIpOffset + 8 : kReturnIpOffset;
  if (has_caller) at = put_caller(at, load_from<std::uint64_t>(payload.bytes + caller), payload);
  return event.middle.put_to(at);
}

// A return address is after its call, which may be the last instruction of its function.
char* TextFormatter::put_caller(char* at, std::uint64_t address, const Payload& payload) const {
  const NamedAddress found =
      options_.symbols == nullptr ? NamedAddress{} : options_.symbols->name_of(*payload.record, address - 1);
  if (found.name.empty()) return put_hex(put(at, "0x"), address);
  return put_text(at, found.name.substr(0, kSymbolName));
}

char* TextFormatter::put_symbol(char* at, std::uint64_t address, bool is_bare, const Payload& payload) const {
  const NamedAddress found =
      options_.symbols == nullptr ? NamedAddress{} : options_.symbols->name_of(*payload.record, address);
  if (found.name.empty()) return put_hex(put(at, "0x"), address);
  at = put_text(at, found.name.substr(0, kSymbolName));
  if (found.distance == kStandsAlone) return at;
  at = put_hex(put(at, "+0x"), found.distance);
  return is_bare ? put_hex(put(at, "/0x"), found.size) : at;
}

// Rounded to the nearest microsecond, as in the kernel. All but the microseconds is usually the same as in an earlier line.
char* TextFormatter::put_cpu_and_time(char* at, std::uint16_t cpu, std::uint64_t ns) {
  constexpr std::uint64_t kSecond = 1'000'000;
  const std::uint64_t microseconds = ns / 1000 + (ns % 1000 >= 500 ? 1 : 0);
  SecondPlan& second = seconds_[cpu % seconds_.size()];
  if (second.cpu != cpu || microseconds - second.begin >= kSecond || second.text.size == 0) {
    char text[kSecondBytes];
    const char* end = put_cpu_and_seconds(text, cpu, microseconds / kSecond, options_.is_short);
    second = {cpu, microseconds / kSecond * kSecond, Piece({text, static_cast<std::size_t>(end - text)})};
  }
  return put_six(second.text.put_to(at), static_cast<std::uint32_t>(microseconds - second.begin));
}

char* TextFormatter::put_field(char* at, const FieldPlan& field, Payload& payload) const {
  at = field.prefix.put_to(at);
  const std::uint8_t* value = payload.bytes + field.offset;
  if (field.of_entry && (payload.record->flags & shared::kRecordNoEntry) != 0) return put_missing(at, field);
  if (field.is_wide) return put_wide_value(at, field, value);
  if (field.conversion && !field.is_array) return put_converted(at, field, value, payload);
  if (!field.is_array && !field.of_entry && field.kind == Kind::hex)
    return put_hex(at, load_unsigned(value, field.size));
  if (!field.is_array) return put_value(at, field, value, payload);
  if (field.is_text) return put_characters(at, field, value);
  for (std::uint32_t i = 0; i < field.elements; ++i, value += field.size) {
    if (i != 0) *at++ = ',';
    at = put_value(at, field, value, payload);
  }
  if (!field.is_bare) *at++ = '}';
  return at;
}

char* TextFormatter::put_converted(char* at, const FieldPlan& field, const std::uint8_t* value,
                                   Payload& payload) const {
  const spec::Conversion& conversion = *field.conversion;
  switch (field.kind) {
    case Kind::unsigned_decimal:
    case Kind::signed_decimal:
    case Kind::hex:
      return put_integer(at, conversion, load_unsigned(value, field.size), field.size);
    case Kind::floating: {
      const double number = field.size == 4 ? load_from<float>(value) : load_from<double>(value);
      return format::put_floating(at, conversion, number);
    }
    case Kind::character:
      return put_characters(at, conversion, {reinterpret_cast<const char*>(value), 1});
    case Kind::string:
    case Kind::symbol:
      return put_value(at, field, value, payload);
  }
  return at;
}

char* TextFormatter::put_characters(char* at, const spec::Conversion& conversion, std::string_view text) const {
  const std::size_t blanks = padding(conversion, text.size());
  std::memset(at, ' ', blanks);
  if (!conversion.is_left) return put_text(at + blanks, text);
  at = put_text(at, text);
  std::memset(at, ' ', blanks);
  return at + blanks;
}

// One text for a whole array.
char* TextFormatter::put_missing(char* at, const FieldPlan& field) {
  at = put(at, kMissing);
  return field.is_array && !field.is_text ? put(at, "}") : at;
}

char* TextFormatter::put_characters(char* at, const FieldPlan& field, const std::uint8_t* value) const {
  const auto* text = reinterpret_cast<const char*>(value);
  const std::string_view shown(text, ::strnlen(text, field.elements));
  return field.is_bare ? put_text(at, shown) : put(put_text(put(at, "\""), shown), "\"");
}

char* TextFormatter::put_value(char* at, const FieldPlan& field, const std::uint8_t* value, Payload& payload) const {
  switch (field.kind) {
    case Kind::unsigned_decimal:
      return put_decimal(at, load_unsigned(value, field.size));
    case Kind::signed_decimal:
      return put_signed(at, load_signed(value, field.size));
    case Kind::hex:
      return put_hex(field.is_bare ? at : put(at, "0x"), load_unsigned(value, field.size));
    case Kind::character:
      if (field.is_bare) return put_text(at, {reinterpret_cast<const char*>(value), 1});
      *at++ = '\'';
      at = put_text(at, {reinterpret_cast<const char*>(value), 1});
      *at++ = '\'';
      return at;
    case Kind::string:
      return put_string(at, value, field, payload);
    case Kind::floating:
      return put_floating(at, value, field.size);
    case Kind::symbol:
      return put_symbol(at, load_unsigned(value, field.size), field.is_bare, payload);
  }
  return at;
}

// The prefix has the "0x" of a hexadecimal one.
char* TextFormatter::put_wide_value(char* at, const FieldPlan& field, const std::uint8_t* value) {
  const WideNumber number{.upper = load_from<std::uint64_t>(value + 8), .lower = load_from<std::uint64_t>(value)};
  return field.kind == Kind::hex ? put_wide_hex(at, number) : put_wide(at, number, field.kind == Kind::signed_decimal);
}

// A locator outside the dynamic data of this payload prints as a fault. Three dots follow a string that was cut.
char* TextFormatter::put_string(char* at, const std::uint8_t* locator, const FieldPlan& field, Payload& payload) const {
  const auto value = load_from<std::uint32_t>(locator);
  const std::uint32_t length = value >> 16;
  if (length > payload.string_budget) return put(at, "(fault)");
  payload.string_budget -= length;
  const shared::StringData data = shared::string_in(payload.bytes, payload.size, payload.fixed, value);
  if (data.at == nullptr) return put(at, "(fault)");
  const std::string_view text(reinterpret_cast<const char*>(data.at), std::min(data.size, options_.string_limit));
  if (field.conversion) {
    const std::string_view shown = text.substr(0, field.conversion->precision.value_or(shared::kMostString));
    at = put_characters(at, *field.conversion, shown);
    return shown.size() == text.size() && (data.is_cut || text.size() < data.size) ? put(at, "...") : at;
  }
  if (!field.is_bare) *at++ = '"';
  at = put_text(at, text);
  if (!field.is_bare) *at++ = '"';
  return data.is_cut || text.size() < data.size ? put(at, "...") : at;
}

}  // namespace uprobe::format
