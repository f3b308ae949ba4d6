// SPDX-License-Identifier: MIT
#include "engine/output/csv.h"

#include <algorithm>

#include "engine/output/escape.h"

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
  for (const program::Field& field : event.fields()) event.columns.push_back(column_of(field.name));
}

void CsvFormatter::header(Buffer& out) {
  out.add("time,cpu,pid,tid,comm,event");
  for (const std::string& name : columns_) {
    out.add(",");
    add_quoted(out, escaped(name));
  }
  out.add("\n");
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
  add_text(comm);
  add_quoted(out, cell_.view());
  out.add(",");
  out.add(event.name);
  fields_.assign(columns_.size(), nullptr);
  for (std::size_t i = 0; i < event.columns.size(); ++i) fields_[event.columns[i]] = &event.fields()[i];
  for (const program::Field* const field : fields_) {
    out.add(",");
    if (field == nullptr) continue;
    cell_.clear();
    add_cell(*field, values, record);
    add_quoted(out, cell_.view());
  }
  out.add("\n");
}

void CsvFormatter::add_cell(const program::Field& field, Values& values, const trace::EventRecord& record) {
  if (field.count == 0 || field.is_text) return add_element(values.at(field), record);
  for (std::uint32_t i = 0; i < field.count; ++i) {
    cell_.add(i == 0 ? "{" : ",");
    add_element(values.at(field, i), record);
  }
  cell_.add("}");
}

void CsvFormatter::add_element(const Value& value, const trace::EventRecord& record) {
  switch (value.kind) {
    case Value::Kind::text:
      add_text(value.text);
      return value.is_cut ? cell_.add("...") : void();
    case Value::Kind::symbol: {
      Buffer name;
      add_symbol(name, options_.symbols, record, value.number);
      return add_text(name.view());
    }
    case Value::Kind::fault:
      return cell_.add("(fault)");
    case Value::Kind::missing:
      return cell_.add("(missing)");
    default:
      return add_number(cell_, value);
  }
}

void CsvFormatter::add_text(std::string_view text) {
  if (!options_.escape_control) return cell_.add(text);
  cell_.end_at(put_escaped(cell_.room(kMostEscaped * text.size()), text));
}

}  // namespace uprobe::format
