// SPDX-License-Identifier: MIT
#include "engine/output/json_values.h"

#include <cmath>

#include "engine/output/json_text.h"
#include "engine/shared/session_area.h"

namespace uprobe::format {

namespace {

// A larger integer is a string: many readers keep numbers as doubles.
constexpr std::uint64_t kMostExact = std::uint64_t{1} << 53;

// Once in a list, also where several elements have it.
void note(std::vector<std::string_view>& list, std::string_view name) {
  if (list.empty() || list.back() != name) list.push_back(name);
}

bool is_exact(const Value& value) {
  const bool is_signed = value.kind == Value::Kind::signed_decimal;
  const std::uint64_t top = value.is_wide ? value.upper : value.number;
  const bool is_negative = is_signed && static_cast<std::int64_t>(top) < 0;
  const std::uint64_t amount = is_negative ? -value.number : value.number;
  const std::uint64_t rest = is_negative && value.number != 0 ? ~value.upper : is_negative ? -value.upper : value.upper;
  return amount <= kMostExact && (!value.is_wide || rest == 0);
}

void add_integer(Buffer& out, const Value& value) {
  Value decimal = value;
  if (value.kind == Value::Kind::hex) decimal.kind = Value::Kind::unsigned_decimal;
  const bool has_quotes = !is_exact(value);
  if (has_quotes) out.add("\"");
  add_number(out, decimal);
  if (has_quotes) out.add("\"");
}

void add_floating(Buffer& out, const Value& value) {
  const bool is_finite = std::isfinite(value.floating);
  if (!is_finite) out.add("\"");
  add_number(out, value);
  if (!is_finite) out.add("\"");
}

class Fields {
 public:
  Fields(const trace::EventRecord& record, Symbols* symbols, JsonMarks& marks, Buffer& out)
      : record_(record), symbols_(symbols), marks_(marks), out_(out) {}

  void add(const program::Field& field, Values& values) {
    if (!field.is_list()) return add(field, values.at(field));
    for (std::uint32_t i = 0; i < field.count; ++i) {
      out_.add(i == 0 ? "[" : ",");
      add(field, values.at(field, i));
    }
    out_.add("]");
  }

 private:
  void add(const program::Field& field, const Value& value) {
    switch (value.kind) {
      case Value::Kind::unsigned_decimal:
      case Value::Kind::signed_decimal:
      case Value::Kind::hex:
        return add_integer(out_, value);
      case Value::Kind::floating:
        return add_floating(out_, value);
      case Value::Kind::text:
        if (value.is_cut) note(marks_.cut, field.name);
        return add_text(field, value.text);
      case Value::Kind::symbol: {
        Buffer name;
        add_symbol(name, symbols_, record_, value.number);
        return add_text(field, name.view());
      }
      case Value::Kind::fault:
      case Value::Kind::missing:
        return out_.add("null");
    }
  }
  void add_text(const program::Field& field, std::string_view text) {
    if (add_json_text(out_, text)) note(marks_.escaped, field.name);
  }

  const trace::EventRecord& record_;
  Symbols* const symbols_;
  JsonMarks& marks_;
  Buffer& out_;
};

}  // namespace

void add_json_fields(const KnownEvent& event, Values& values, const trace::EventRecord& record, Symbols* symbols,
                     JsonMarks& marks, Buffer& out) {
  Fields fields(record, symbols, marks, out);
  bool is_first = true;
  for (const program::Field& field : event.fields()) {
    if (field.of_entry && (record.flags & shared::kRecordNoEntry) != 0) continue;
    if (!is_first) out.add(",");
    is_first = false;
    add_json_text(out, field.name);
    out.add(":");
    fields.add(field, values);
  }
}

}  // namespace uprobe::format
