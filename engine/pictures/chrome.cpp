// SPDX-License-Identifier: MIT
#include "engine/pictures/chrome.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/output/digits.h"
#include "engine/output/json_text.h"

namespace uprobe::format {

namespace {

// Microseconds.
void add_microseconds(Buffer& out, std::string_view key, std::uint64_t ns) {
  out.add(key);
  char* at = put_decimal(out.room(kNumberBytes), ns / 1000);
  const auto rest = static_cast<std::uint32_t>(ns % 1000);
  *at++ = '.';
  *at++ = static_cast<char>('0' + rest / 100);
  *at++ = static_cast<char>('0' + rest / 10 % 10);
  *at++ = static_cast<char>('0' + rest % 10);
  out.end_at(at);
}

}  // namespace

void ChromeFormatter::begin(std::string_view kind, std::uint32_t tid, std::uint32_t pid, Buffer& out) {
  out.add(has_begun_ ? ",\n{\"ph\":\"" : "[\n{\"ph\":\"");
  has_begun_ = true;
  out.add(kind);
  out.add("\",\"pid\":");
  add_decimal(out, pid);
  out.add(",\"tid\":");
  add_decimal(out, tid);
}

void ChromeFormatter::add(const program::EventLayout& layout) {
  events_.emplace_back(layout);
  names_.push_back(json_of(layout.event));
  counted_.push_back(counted_fields(options_.counters, events_.back()));
  // "return" has what the call's return records.
  for (program::Field& field : events_.back().layout.fields)
    if (field.name == "return") field.name = "field.return";
  roles_.add(layout);
}

void ChromeFormatter::name_thread(Thread& thread, std::string_view comm, Buffer& out) {
  if (thread.more.pid == thread.pid && thread.more.comm == comm) return;
  thread.more = {thread.pid, std::string(comm)};
  for (const std::string_view what : {"thread_name", "process_name"}) {
    if (what == "process_name" && thread.pid != thread.tid) continue;
    begin("M", thread.tid, thread.pid, out);
    out.add(",\"name\":\"");
    out.add(what);
    out.add("\",\"args\":{\"name\":");
    add_json_text(out, comm);
    out.add("}}");
  }
}

void ChromeFormatter::append(const trace::EventRecord& record, std::string_view comm, Buffer& out) {
  if (record.type >= events_.size()) return;
  const KnownEvent& event = events_[record.type];
  last_ = std::max(last_, record.ns);
  Values values(event, record, options_, padded_);
  Buffer fields;
  JsonMarks marks;
  add_json_fields(event, values, record, options_.symbols, marks, fields);
  const auto left = [&](const Thread& thread, const Call& call) { add_instant(call, thread, out); };
  Thread& thread = threads_.thread_of(record, left);
  name_thread(thread, comm, out);
  if (!counted_[record.type].empty()) add_counters(record, thread, out);
  Call call{.ns = record.ns, .type = record.type, .data = std::string(fields.view())};
  switch (roles_.role(record.type)) {
    case CallEvents::Role::entry:
      return threads_.enter(thread, std::move(call), left);
    case CallEvents::Role::exit:
      if (const auto ended = threads_.end_of(thread, record.type, left))
        return add_slice(*ended, record.ns, call.data, thread, out);
      [[fallthrough]];
    case CallEvents::Role::hit:
      return add_instant(call, thread, out);
  }
}

void ChromeFormatter::add_counters(const trace::EventRecord& record, const Thread& thread, Buffer& out) {
  const KnownEvent& event = events_[record.type];
  Values values(event, record, options_, padded_);
  for (const CountedField& counted : counted_[record.type]) {
    const Value value = values.at(event.fields()[counted.field]);
    if (value.kind == Value::Kind::missing) continue;
    if (value.kind == Value::Kind::floating && !std::isfinite(value.floating)) continue;
    const Counter& counter = options_.counters[counted.counter];
    begin("C", thread.tid, thread.pid, out);
    add_microseconds(out, ",\"ts\":", record.ns);
    out.add(",\"name\":");
    add_json_text(out, counter.event + ":" + counter.field);
    out.add(",\"args\":{");
    add_json_text(out, counter.field);
    out.add(":");
    const bool is_hex = value.kind == Value::Kind::hex;
    add_number(out, {.kind = is_hex ? Value::Kind::unsigned_decimal : value.kind,
                     .is_single = value.is_single,
                     .number = value.number,
                     .floating = value.floating});
    out.add("}}");
  }
}

void ChromeFormatter::add_slice(const Call& call, std::uint64_t ns, const std::string& values, const Thread& thread,
                                Buffer& out) {
  begin("X", thread.tid, thread.pid, out);
  add_microseconds(out, ",\"ts\":", call.ns);
  add_microseconds(out, ",\"dur\":", ns - std::min(call.ns, ns));
  out.add(",\"name\":");
  out.add(names_[call.type]);
  out.add(",\"args\":{");
  out.add(call.data);
  if (!call.data.empty() && !values.empty()) out.add(",");
  if (!values.empty()) {
    out.add("\"return\":{");
    out.add(values);
    out.add("}");
  }
  out.add("}}");
}

void ChromeFormatter::add_instant(const Call& call, const Thread& thread, Buffer& out) {
  begin("i", thread.tid, thread.pid, out);
  add_microseconds(out, ",\"ts\":", call.ns);
  out.add(",\"s\":\"t\",\"name\":");
  out.add(names_[call.type]);
  out.add(",\"args\":{");
  out.add(call.data);
  out.add("}}");
}

// Losses are marks at the end.
void ChromeFormatter::end(std::span<const Total> totals, Buffer& out) {
  threads_.leave_all([&](const Thread& thread, const Call& call) { add_instant(call, thread, out); });
  for (const Total& total : totals) {
    if (total.lost == 0 && total.missed == 0) continue;
    begin("i", 0, 0, out);
    add_microseconds(out, ",\"ts\":", last_);
    out.add(",\"s\":\"g\",\"name\":\"lost\",\"args\":{\"event\":");
    add_json_text(out, total.name);
    out.add(",\"hits\":");
    add_decimal(out, total.lost);
    out.add(",\"returns\":");
    add_decimal(out, total.missed);
    out.add("}}");
  }
  out.add(has_begun_ ? "\n]\n" : "[]\n");
}

}  // namespace uprobe::format
