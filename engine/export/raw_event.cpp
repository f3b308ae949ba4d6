// SPDX-License-Identifier: MIT
#include "engine/export/raw_event.h"

#include <algorithm>
#include <cstring>

#include "engine/export/identifiers.h"
#include "engine/export/ring_page.h"
#include "engine/program/format_file.h"
#include "engine/shared/session_area.h"

namespace uprobe::format {

namespace {

using program::Kind;

constexpr std::string_view kCut = "...";
constexpr std::uint32_t kLeastString = kCut.size() + 1;

bool is_array_of_strings(const program::Field& field) {
  return (field.kind == Kind::string || field.kind == Kind::character) && field.count != 0 && !field.is_text;
}

bool is_string(const program::Field& field, bool lacks_entry) {
  switch (field.kind) {
    case Kind::character:
    case Kind::string:
    case Kind::symbol:
    case Kind::floating:
      return true;
    default:
      return field.is_text || field.is_wide || (field.of_entry && lacks_entry);
  }
}

program::Field string_field(const std::string& name, std::uint32_t place) {
  return {.name = name, .kind = Kind::string, .size = program::kLocatorBytes, .offset = place};
}

}  // namespace

RawEvent::RawEvent(const program::EventLayout& layout)
    : event_(layout), whole_(make_shape(false)), without_entry_(make_shape(true)) {}

RawEvent::Form RawEvent::form_of(const trace::EventRecord& record) const {
  const auto& fields = event_.layout.fields;
  const bool has_entry =
      std::any_of(fields.begin(), fields.end(), [](const program::Field& field) { return field.of_entry; });
  return {.lacks_entry = has_entry && (record.flags & shared::kRecordNoEntry) != 0,
          .is_changed = (record.flags & shared::kRecordChanged) != 0};
}

// The locators of strings come after the fields, since not each field has room for one.
RawEvent::Shape RawEvent::make_shape(bool lacks_entry) const {
  Shape made;
  Identifiers names;
  const program::EventLayout& from = event_.layout;
  made.layout.group = identifier(from.group), made.layout.event = identifier(from.event);
  made.layout.is_return = from.is_return;
  made.fixed = (event_.needed + 3) / 4 * 4;
  const auto place = [&] {
    ++made.strings;
    made.fixed += program::kLocatorBytes;
    return made.fixed - program::kLocatorBytes;
  };
  if (from.style == program::Style::function)
    made.layout.fields.push_back(string_field(names.take("__caller"), made.caller = place()));
  for (const program::Field& field : event_.fields()) {
    program::Field written = field;
    made.places.push_back(is_string(field, lacks_entry) ? place() : 0);
    if (made.places.back() != 0) written = string_field(field.name, made.places.back());
    written.name = names.take(field.name), written.declared.clear();
    made.layout.fields.push_back(written);
  }
  return made;
}

std::string RawEvent::format_file(Form form) const {
  const Shape& of = shape(form);
  return program::format_file(of.layout, of.ids[form.is_changed ? 1 : 0], program::FormatReader::libtraceevent,
                              form.is_changed ? " (changed)" : "");
}

// Every string that is still to come has room for three dots.
void RawEvent::add_string(std::uint32_t place, std::string_view text) {
  --to_come_;
  const std::size_t room = RingPage::kMostRecord - bytes_.size() - to_come_ * kLeastString - 1;
  const auto at = static_cast<std::uint32_t>(bytes_.size());
  const bool is_cut = text.size() > room;
  bytes_ += is_cut ? text.substr(0, room - kCut.size()) : text;
  if (is_cut) bytes_ += kCut;
  bytes_ += '\0';
  const std::uint32_t locator = static_cast<std::uint32_t>(bytes_.size() - at) << 16 | at;
  std::memcpy(bytes_.data() + place, &locator, sizeof locator);
}

std::string_view RawEvent::encode(const trace::EventRecord& record, const Options& options) {
  const Form which = form_of(record);
  const Shape& form = shape(which);
  if (form.fixed + form.strings * kLeastString >= RingPage::kMostRecord) return {};
  Values values(event_, record, options, padded_);
  to_come_ = form.strings;
  bytes_.assign(form.fixed, '\0');
  std::memcpy(bytes_.data(), record.payload.data(), std::min<std::size_t>(record.payload.size(), event_.needed));
  const shared::PayloadHead head{.type = id(which),
                                 .flags = 0,
                                 .preempt_count = 0,
                                 .pid = static_cast<std::int32_t>(record.tid),
                                 .ip = values.address()};
  std::memcpy(bytes_.data(), &head, sizeof head);
  Buffer text;
  if (form.caller != 0) {
    add_symbol(text, options.symbols, record, values.caller() - 1);
    add_string(form.caller, text.view());
  }
  const std::span<const program::Field> fields = event_.fields();
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (form.places[i] == 0) continue;
    text.clear();
    if (fields[i].of_entry && which.lacks_entry)
      text.add("(missing)");
    else
      add_field(text, fields[i], values, record, options, is_array_of_strings(fields[i]));
    add_string(form.places[i], text.view());
  }
  return bytes_;
}

}  // namespace uprobe::format
