// SPDX-License-Identifier: MIT
#include "engine/output/chrome.h"

#include <algorithm>
#include <utility>

#include "engine/output/digits.h"
#include "engine/output/json_text.h"

namespace uprobe::format {

namespace {

constexpr std::size_t kMostThreads = 65536, kMostCalls = 1024;  // that wait, of all threads and of one

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

// A thread whose process is not known is shown as one of its own.
ChromeFormatter::Thread& ChromeFormatter::thread_of(const trace::EventRecord& record, std::string_view comm,
                                                    Buffer& out) {
  if (threads_.size() >= kMostThreads && !threads_.contains(record.tid)) leave_all(out);
  Thread& thread = threads_[record.tid];
  const std::uint32_t pid = record.pid != 0 ? record.pid : thread.pid != 0 ? thread.pid : record.tid;
  if (thread.pid == pid && thread.comm == comm) return thread;
  thread.pid = pid, thread.comm = comm;
  for (const std::string_view what : {"thread_name", "process_name"}) {
    if (what == "process_name" && pid != record.tid) continue;
    begin("M", record.tid, pid, out);
    out.add(",\"name\":\"");
    out.add(what);
    out.add("\",\"args\":{\"name\":");
    add_json_text(out, comm);
    out.add("}}");
  }
  return thread;
}

void ChromeFormatter::append(const trace::EventRecord& record, std::string_view comm, Buffer& out) {
  if (record.type >= events_.size()) return;
  const KnownEvent& event = events_[record.type];
  last_ = std::max(last_, record.ns);
  Values values(event, record, options_, padded_);
  Thread& thread = thread_of(record, comm, out);
  Buffer fields;
  JsonMarks marks;
  add_json_fields(event, values, record, options_.symbols, marks, fields);
  Call call{.ns = record.ns,
            .address = values.address(),
            .name = json_of(event.layout.event),
            .values = std::string(fields.view())};
  if (event.layout.is_return)
    add_return(call, record.tid, thread, out);
  else
    add_call(std::move(call), record.tid, thread, out);
}

void ChromeFormatter::add_call(Call call, std::uint32_t tid, Thread& thread, Buffer& out) {
  if (thread.calls.size() >= kMostCalls) {
    add_instant(thread.calls.front(), tid, thread.pid, out);
    thread.calls.pop_front();
  }
  thread.calls.push_back(std::move(call));
}

void ChromeFormatter::add_return(const Call& returned, std::uint32_t tid, Thread& thread, Buffer& out) {
  const auto is_its = [&](const Call& call) { return call.address == returned.address; };
  const auto found = std::find_if(thread.calls.rbegin(), thread.calls.rend(), is_its);
  if (found == thread.calls.rend()) return add_instant(returned, tid, thread.pid, out);
  const auto entry = found.base() - 1;
  for (auto call = found.base(); call != thread.calls.end(); ++call) add_instant(*call, tid, thread.pid, out);
  begin("X", tid, thread.pid, out);
  add_microseconds(out, ",\"ts\":", entry->ns);
  add_microseconds(out, ",\"dur\":", returned.ns - std::min(entry->ns, returned.ns));
  out.add(",\"name\":");
  out.add(entry->name);
  out.add(",\"args\":{");
  out.add(entry->values);
  if (!entry->values.empty() && !returned.values.empty()) out.add(",");
  if (!returned.values.empty()) {
    out.add("\"return\":{");
    out.add(returned.values);
    out.add("}");
  }
  out.add("}}");
  thread.calls.erase(entry, thread.calls.end());
}

void ChromeFormatter::add_instant(const Call& call, std::uint32_t tid, std::uint32_t pid, Buffer& out) {
  begin("i", tid, pid, out);
  add_microseconds(out, ",\"ts\":", call.ns);
  out.add(",\"s\":\"t\",\"name\":");
  out.add(call.name);
  out.add(",\"args\":{");
  out.add(call.values);
  out.add("}}");
}

void ChromeFormatter::leave_all(Buffer& out) {
  for (const auto& [tid, thread] : threads_)
    for (const Call& call : thread.calls) add_instant(call, tid, thread.pid, out);
  threads_.clear();
}

// Losses are marks at the end.
void ChromeFormatter::end(std::span<const Total> totals, Buffer& out) {
  leave_all(out);
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
