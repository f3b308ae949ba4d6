// SPDX-License-Identifier: MIT
#include "engine/output/values.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "engine/output/digits.h"
#include "engine/output/escape.h"
#include "engine/shared/session_area.h"

namespace uprobe::format {

namespace {

using Layout = program::EventLayout;

// Of the words after the head of a payload (engine/program/layout.h).
constexpr std::uint32_t kAddress = 8, kReturnAddress = 16;
constexpr std::size_t kMostSymbol = 200;  // limits the length of a line

template <class T>
T loaded(const std::uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::uint64_t number_at(const std::uint8_t* at, std::uint8_t size) {
  if (size == 8) return loaded<std::uint64_t>(at);
  if (size == 4) return loaded<std::uint32_t>(at);
  if (size == 2) return loaded<std::uint16_t>(at);
  return *at;
}

std::uint64_t signed_number_at(const std::uint8_t* at, std::uint8_t size) {
  if (size == 4) return static_cast<std::uint64_t>(std::int64_t{loaded<std::int32_t>(at)});
  if (size == 2) return static_cast<std::uint64_t>(std::int64_t{loaded<std::int16_t>(at)});
  if (size == 1) return static_cast<std::uint64_t>(std::int64_t{loaded<std::int8_t>(at)});
  return loaded<std::uint64_t>(at);
}

Value floating_at(const std::uint8_t* at, std::uint8_t size) {
  return {.kind = Value::Kind::floating,
          .is_single = size == 4,
          .floating = size == 4 ? static_cast<double>(loaded<float>(at)) : loaded<double>(at)};
}

Value wide_value(program::Kind kind, const std::uint8_t* at) {
  Value value{.kind = kind == program::Kind::signed_decimal ? Value::Kind::signed_decimal
                      : kind == program::Kind::hex          ? Value::Kind::hex
                                                            : Value::Kind::unsigned_decimal,
              .is_wide = true};
  value.number = loaded<std::uint64_t>(at);
  value.upper = loaded<std::uint64_t>(at + 8);
  return value;
}

Value text_value(std::string_view text) { return {.kind = Value::Kind::text, .text = text}; }

void add_element(Buffer& out, const Value& value, const trace::EventRecord& record, const Options& options,
                 bool has_quotes) {
  switch (value.kind) {
    case Value::Kind::text:
      if (has_quotes) out.add("\"");
      add_text(out, value.text, options);
      if (has_quotes) out.add("\"");
      return value.is_cut ? out.add("...") : void();
    case Value::Kind::symbol: {
      Buffer name;
      add_symbol(name, options.symbols, record, value.number);
      return add_text(out, name.view(), options);
    }
    case Value::Kind::fault:
      return out.add("(fault)");
    case Value::Kind::missing:
      return out.add("(missing)");
    default:
      return add_number(out, value);
  }
}

}  // namespace

KnownEvent::KnownEvent(const Layout& of)
    : layout(of), needed(std::max(of.fixed_bytes, of.is_return ? kReturnAddress + 8 : kAddress + 8)) {
  for (const program::Field& field : layout.fields)
    needed = std::max(needed, field.offset + field.size * std::max<std::uint32_t>(field.count, 1));
}

std::span<const program::Field> KnownEvent::fields() const {
  const std::span<const program::Field> all = layout.fields;
  return layout.style == program::Style::function && !all.empty() ? all.subspan(1) : all;
}

std::uint32_t elements_of(const program::Field& field) { return field.is_list() ? field.count : 1; }

Values::Values(const KnownEvent& event, const trace::EventRecord& record, const Options& options,
               std::vector<std::uint8_t>& padded)
    : event_(event), record_(record), options_(options), bytes_(record.payload) {
  if (bytes_.size() < event.needed) {
    padded.assign(event.needed, 0);
    std::copy(bytes_.begin(), bytes_.end(), padded.begin());
    bytes_ = padded;
  }
  string_budget_ = bytes_.size();
}

std::uint64_t Values::address() const { return loaded<std::uint64_t>(bytes_.data() + kAddress); }
std::uint64_t Values::return_address() const { return loaded<std::uint64_t>(bytes_.data() + kReturnAddress); }
std::uint64_t Values::caller() const {
  return loaded<std::uint64_t>(bytes_.data() + kReturnAddress + (event_.layout.is_return ? 8 : 0));
}

Value Values::at(const program::Field& field, std::uint32_t element) {
  using program::Kind;
  if (field.of_entry && (record_.flags & shared::kRecordNoEntry) != 0) return {.kind = Value::Kind::missing};
  const std::uint8_t* value = bytes_.data() + field.offset + field.size * element;
  const auto* text = reinterpret_cast<const char*>(value);
  if (field.is_text) return text_value({text, ::strnlen(text, std::max<std::uint32_t>(field.count, 1))});
  if (field.is_wide) return wide_value(field.kind, value);
  switch (field.kind) {
    case Kind::unsigned_decimal:
      return {.kind = Value::Kind::unsigned_decimal, .number = number_at(value, field.size)};
    case Kind::signed_decimal:
      return {.kind = Value::Kind::signed_decimal, .number = signed_number_at(value, field.size)};
    case Kind::hex:
      return {.kind = Value::Kind::hex, .number = number_at(value, field.size)};
    case Kind::symbol:
      return {.kind = Value::Kind::symbol, .number = number_at(value, field.size)};
    case Kind::character:
      return text_value({text, 1});
    case Kind::string:
      return string_at(value);
    case Kind::floating:
      return floating_at(value, field.size);
  }
  return {};
}

// A locator outside the dynamic data of this payload is a fault.
Value Values::string_at(const std::uint8_t* locator) {
  const auto value = loaded<std::uint32_t>(locator);
  const std::uint32_t length = value >> 16;
  if (length > string_budget_) return {};
  string_budget_ -= length;
  const auto size = static_cast<std::uint32_t>(bytes_.size());
  const shared::StringData data = shared::string_in(bytes_.data(), size, event_.needed, value);
  if (data.at == nullptr) return {};
  Value found = text_value({reinterpret_cast<const char*>(data.at), std::min(data.size, options_.string_limit)});
  found.is_cut = data.is_cut || found.text.size() < data.size;
  return found;
}

namespace {

char* put_0x(char* at) {
  *at++ = '0';
  *at++ = 'x';
  return at;
}

}  // namespace

void add_number(Buffer& out, const Value& value) {
  char* at = out.room(kNumberBytes);
  if (value.is_wide) {
    const WideNumber number{value.upper, value.number};
    const bool is_signed = value.kind == Value::Kind::signed_decimal;
    return out.end_at(value.kind == Value::Kind::hex ? put_wide_hex(put_0x(at), number)
                                                     : put_wide(at, number, is_signed));
  }
  switch (value.kind) {
    case Value::Kind::signed_decimal:
      return out.end_at(put_signed(at, static_cast<std::int64_t>(value.number)));
    case Value::Kind::hex:
      return out.end_at(put_hex(put_0x(at), value.number));
    case Value::Kind::floating:
      return out.end_at(value.is_single ? std::to_chars(at, at + kNumberBytes, static_cast<float>(value.floating)).ptr
                                        : std::to_chars(at, at + kNumberBytes, value.floating).ptr);
    default:
      return out.end_at(put_decimal(at, value.number));
  }
}

void add_decimal(Buffer& out, std::uint64_t number) { out.end_at(put_decimal(out.room(kNumberBytes), number)); }

void add_symbol(Buffer& out, Symbols* symbols, const trace::EventRecord& record, std::uint64_t address) {
  const NamedAddress found = symbols == nullptr ? NamedAddress{} : symbols->name_of(record, address);
  if (found.name.empty()) return add_number(out, {.kind = Value::Kind::hex, .number = address});
  out.add(found.name.substr(0, kMostSymbol));
  if (found.distance == kStandsAlone) return;
  out.add("+");
  add_number(out, {.kind = Value::Kind::hex, .number = found.distance});
}

void add_text(Buffer& out, std::string_view text, const Options& options) {
  if (!options.escape_control) return out.add(text);
  out.end_at(put_escaped(out.room(kMostEscaped * text.size()), text));
}

void add_field(Buffer& out, const program::Field& field, Values& values, const trace::EventRecord& record,
               const Options& options, bool has_quotes) {
  if (!field.is_list()) return add_element(out, values.at(field), record, options, has_quotes);
  for (std::uint32_t i = 0; i < field.count; ++i) {
    out.add(i == 0 ? "{" : ",");
    add_element(out, values.at(field, i), record, options, has_quotes);
  }
  out.add("}");
}

void add_time(Buffer& out, std::uint64_t ns) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  char* at = put_decimal(out.room(kNumberBytes), ns / kSecond);
  const auto rest = static_cast<std::uint32_t>(ns % kSecond);
  *at++ = '.';
  at = put_six(at, rest / 1000);
  std::uint32_t last = rest % 1000;
  for (int i = 2; i >= 0; --i, last /= 10) at[i] = static_cast<char>('0' + last % 10);
  out.end_at(at + 3);
}

}  // namespace uprobe::format
