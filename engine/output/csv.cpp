// SPDX-License-Identifier: MIT
#include "engine/output/csv.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "engine/output/escape.h"
#include "engine/shared/session_area.h"

namespace uprobe::format {

namespace {

void add_quoted(Buffer& out, std::string_view cell) {
  if (cell.find_first_of("\",\r\n") == std::string_view::npos) return out.add(cell);
  char* at = out.room(2 * cell.size() + 2);
  *at++ = '"';
  for (const char c : cell) {
    if (c == '"') *at++ = '"';
    *at++ = c;
  }
  *at++ = '"';
  out.end_at(at);
}

}  // namespace

Status check_csv_fields(std::span<const program::EventLayout> events) {
  std::unordered_set<std::string_view> names;
  for (const program::EventLayout& layout : events) {
    for (const program::Field& field : layout.fields) names.insert(field.name);
    if (names.size() > kMostCsvFields)
      return Error{.code = Code::limit,
                   .text = "CSV has a column for each name of a field, 1,024 at most, and these events have more",
                   .help = "--format=json has no such limit"};
  }
  return ok();
}

namespace {

// A field may have the name of a column that the format has itself.
std::string column_name(const std::string& field) {
  constexpr std::array<std::string_view, 7> kOwn = {"time", "cpu", "pid", "tid", "comm", "event", "changed"};
  return (std::ranges::find(kOwn, field) != kOwn.end() ? "field." : "") + field;
}

}  // namespace

std::size_t CsvFormatter::column_of(const std::string& name) {
  const auto found = std::find(columns_.begin(), columns_.end(), name);
  const auto column = static_cast<std::size_t>(found - columns_.begin());
  if (found == columns_.end()) columns_.push_back(name);
  return column;
}

void CsvFormatter::add(const program::EventLayout& layout) {
  Event& event = events_.emplace_back(layout);
  Buffer name;
  add_quoted(name, escaped(layout.event));
  event.name = name.view();
  for (const program::Field& field : event.fields()) event.columns.push_back(column_of(column_name(field.name)));
}

void CsvFormatter::header(Buffer& out) {
  out.add("time,cpu,pid,tid,comm,event");
  for (const std::string& name : columns_) {
    out.add(",");
    add_quoted(out, escaped(name));
  }
  out.add(options_.marks_changes ? ",changed\n" : "\n");
}

void CsvFormatter::append(const trace::EventRecord& record, std::string_view comm, Buffer& out) {
  if (record.type >= events_.size()) return;
  const Event& event = events_[record.type];
  Values values(event, record, options_, padded_);
  add_time(out, record.ns);
  out.add(",");
  add_decimal(out, record.cpu);
  out.add(",");
  if (record.pid != 0) add_decimal(out, record.pid);
  out.add(",");
  add_decimal(out, record.tid);
  out.add(",");
  cell_.clear();
  add_text(cell_, comm, options_);
  add_quoted(out, cell_.view());
  out.add(",");
  out.add(event.name);
  fields_.assign(columns_.size(), nullptr);
  for (std::size_t i = 0; i < event.columns.size(); ++i) fields_[event.columns[i]] = &event.fields()[i];
  for (const program::Field* const field : fields_) {
    out.add(",");
    if (field == nullptr) continue;
    cell_.clear();
    add_field(cell_, *field, values, record, options_, field->is_list());
    add_quoted(out, cell_.view());
  }
  if (options_.marks_changes) out.add((record.flags & shared::kRecordChanged) != 0 ? ",true" : ",");
  out.add("\n");
}

}  // namespace uprobe::format
