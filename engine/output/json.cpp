// SPDX-License-Identifier: MIT
#include "engine/output/json.h"

#include "engine/output/json_text.h"
#include "engine/shared/session_area.h"

namespace uprobe::format {

namespace {

void add_address(Buffer& out, std::uint64_t address) {
  add_number(out, {.kind = Value::Kind::hex, .number = address});
  out.add("\"");
}

void add_count(std::string_view key, std::uint64_t count, Buffer& out) {
  out.add(key);
  add_decimal(out, count);
}

void add_name(std::string_view key, std::string_view name, std::string_view is_escaped, Buffer& out) {
  out.add(key);
  if (add_json_text(out, name)) out.add(is_escaped);
}

}  // namespace

// Nanoseconds since 1970 are more than a double can hold.
void JsonFormatter::add_json_time(std::uint64_t ns, Buffer& out) const {
  if (options_.clock != trace::ClockKind::wall) return add_time(out, ns);
  out.add("\"");
  add_decimal(out, ns);
  out.add("\"");
}

void JsonFormatter::add(const program::EventLayout& layout) {
  Event& event = events_.emplace_back(layout);
  event.names = ",\"group\":" + json_of(layout.group) + ",\"event\":" + json_of(layout.event) + ",\"address\":\"";
}

void JsonFormatter::append(const trace::EventRecord& record, std::string_view comm, Buffer& out) {
  if (record.type >= events_.size()) return;
  const Event& event = events_[record.type];
  Values values(event, record, options_, padded_);
  marks_.clear();
  out.add("{\"time\":");
  add_json_time(record.ns, out);
  out.add(",\"cpu\":");
  add_decimal(out, record.cpu);
  out.add(",\"pid\":");
  record.pid == 0 ? out.add("null") : add_decimal(out, record.pid);
  out.add(",\"tid\":");
  add_decimal(out, record.tid);
  out.add(",\"comm\":");
  const bool has_escaped_name = add_json_text(out, comm);
  add_place(event, values, record, out);
  out.add(",\"args\":{");
  add_json_fields(event, values, record, options_.symbols, marks_, out);
  out.add("}");
  if ((record.flags & shared::kRecordChanged) != 0) out.add(",\"changed\":true");
  if (!record.stack.empty()) add_stack(record, out);
  add_names(",\"cut\":[", marks_.cut, out);
  add_names(",\"escaped\":[", marks_.escaped, out);
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

void JsonFormatter::begin_object(std::string_view type, std::uint64_t ns, Buffer& out) const {
  out.add("{\"type\":\"");
  out.add(type);
  out.add("\",\"time\":");
  add_json_time(ns, out);
}

void JsonFormatter::process(const ProcessEvent& event, Buffer& out) {
  using Kind = ProcessEvent::Kind;
  begin_object(event.kind == Kind::start ? "start" : event.kind == Kind::exec ? "exec" : "end", event.ns, out);
  out.add(",\"pid\":");
  add_decimal(out, event.pid);
  if (event.parent != 0) add_count(",\"parent\":", event.parent, out);
  add_name(",\"comm\":", event.comm, ",\"escaped_comm\":true", out);
  if (!event.exe.empty()) add_name(",\"exe\":", event.exe, ",\"escaped_exe\":true", out);
  if (event.exit) add_count(",\"exit\":", static_cast<std::uint32_t>(*event.exit), out);
  if (event.signal) add_count(",\"signal\":", static_cast<std::uint32_t>(*event.signal), out);
  out.add("}\n");
}

// Readers that add up the `hits` of all losses are to find them once: at the end.
void JsonFormatter::loss(const LossSoFar& loss, Buffer& out) {
  begin_object("lost", loss.ns, out);
  out.add(",\"name\":");
  add_json_text(out, loss.name);
  add_count(",\"hits_so_far\":", loss.hits, out);
  add_count(",\"returns_so_far\":", loss.returns, out);
  out.add("}\n");
}

void JsonFormatter::end(std::span<const Total> totals, Buffer& out) {
  for (const Total& total : totals) {
    if (total.lost == 0 && total.missed == 0) continue;
    out.add("{\"type\":\"lost\",\"name\":");
    add_json_text(out, total.name);
    add_count(",\"hits\":", total.lost, out);
    add_count(",\"returns\":", total.missed, out);
    out.add("}\n");
  }
}

}  // namespace uprobe::format
