// SPDX-License-Identifier: MIT
#include "engine/pictures/counters.h"

#include <string>

namespace uprobe::format {

namespace {

bool is_numeric(const program::Field& field) {
  using program::Kind;
  const bool is_number = field.kind == Kind::unsigned_decimal || field.kind == Kind::signed_decimal ||
                         field.kind == Kind::hex || field.kind == Kind::floating;
  return is_number && field.count == 0 && !field.is_text;
}

bool is_of(const Counter& counter, const program::EventLayout& layout) {
  return counter.event == layout.event || counter.event == layout.group + "/" + layout.event;
}

std::string numbers_of(const program::EventLayout& layout) {
  std::string names;
  for (const program::Field& field : layout.fields)
    if (is_numeric(field)) names += (names.empty() ? "there are: " : ", ") + field.name;
  return names.empty() ? "the event records no number: give one with its place, e.g. size=$arg1" : names;
}

Error refused(const Counter& counter, const std::string& text, const std::string& help) {
  return Error{
      .code = Code::usage, .text = text, .where = "--counter=" + counter.event + ":" + counter.field, .help = help};
}

}  // namespace

Result<Counter> parse_counter(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == text.size())
    return Error{.code = Code::usage,
                 .text = "'" + std::string(text) + "' is not EVENT:FIELD",
                 .help = "e.g. --counter=alloc:size"};
  return Counter{.event = std::string(text.substr(0, colon)), .field = std::string(text.substr(colon + 1))};
}

std::vector<Counter> parse_counters(const std::vector<std::string>& texts) {
  std::vector<Counter> counters;
  for (const std::string& text : texts)
    if (auto counter = parse_counter(text)) counters.push_back(counter.take());
  return counters;
}

Status check_counters(const std::vector<std::string>& texts, std::span<const program::EventLayout> layouts) {
  for (const Counter& counter : parse_counters(texts)) {
    const program::EventLayout* event = nullptr;
    bool is_found = false;
    for (const program::EventLayout& layout : layouts) {
      if (!is_of(counter, layout)) continue;
      event = &layout;
      is_found = is_found || !counted_fields({counter}, KnownEvent(layout)).empty();
    }
    if (event == nullptr) return refused(counter, "there is no event '" + counter.event + "'", "the name after 'p:'");
    if (!is_found)
      return refused(counter, "the event has no field '" + counter.field + "' that is a number", numbers_of(*event));
  }
  return ok();
}

std::vector<CountedField> counted_fields(const std::vector<Counter>& counters, const KnownEvent& event) {
  std::vector<CountedField> found;
  const auto fields = event.fields();
  for (std::size_t i = 0; i < counters.size(); ++i)
    for (std::size_t field = 0; field < fields.size() && is_of(counters[i], event.layout); ++field)
      if (fields[field].name == counters[i].field && is_numeric(fields[field])) found.push_back({i, field});
  return found;
}

}  // namespace uprobe::format
