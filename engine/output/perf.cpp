// SPDX-License-Identifier: MIT
#include "engine/output/perf.h"

#include "engine/output/digits.h"

namespace uprobe::format {

namespace {

constexpr std::size_t kMostFunctionName = 200, kAddressRoom = 40;

void add_bare_hex(Buffer& out, std::uint64_t value) { out.end_at(put_hex(out.room(kAddressRoom), value)); }

// Three digits at least, as everywhere in traces.
void add_cpu(Buffer& out, std::uint16_t cpu) {
  out.add(cpu < 10 ? " [00" : cpu < 100 ? " [0" : " [");
  add_decimal(out, cpu);
  out.add("] ");
}

}  // namespace

// "PROCESS/THREAD", or the thread alone where its process is not known.
void PerfFormatter::add_task(const trace::EventRecord& record, std::string_view comm, Buffer& out) const {
  add_text(out, comm.empty() ? "?" : comm, options_);
  out.add(" ");
  if (record.pid != 0) {
    add_decimal(out, record.pid);
    out.add("/");
  }
  add_decimal(out, record.tid);
  add_cpu(out, record.cpu);
}

void PerfFormatter::append(const trace::EventRecord& record, std::string_view comm, Buffer& out) {
  if (record.type >= events_.size()) return;
  const KnownEvent& event = events_[record.type];
  Values values(event, record, options_, padded_);
  add_task(record, comm, out);
  add_time(out, record.ns);
  out.add(": ");
  add_text(out, event.layout.group, options_);
  out.add(":");
  add_text(out, event.layout.event, options_);
  out.add(": (");
  if (event.layout.is_return) {
    add_bare_hex(out, values.return_address());
    out.add(" <- ");
  }
  add_bare_hex(out, values.address());
  out.add(")");
  for (const program::Field& field : event.fields()) {
    out.add(" ");
    add_text(out, field.name, options_);
    out.add("=");
    add_field(out, field, values, record, options_, true);
  }
  out.add("\n");
  if (record.stack.empty()) return;
  for (const StackFrame& frame :
       options_.symbols == nullptr ? linked_frames(record) : options_.symbols->frames_of(record))
    add_frame(record, frame, out);
  out.add("\n");
}

void PerfFormatter::add_frame(const trace::EventRecord& record, const StackFrame& frame, Buffer& out) const {
  const std::uint64_t call_byte = frame.is_return ? 1 : 0;
  const CodePlace place =
      options_.symbols == nullptr ? CodePlace{} : options_.symbols->place_of(&record, frame.address - call_byte);
  out.add("\t");
  add_bare_hex(out, frame.address);
  out.add(" ");
  add_text(out, place.name.empty() ? "[unknown]" : std::string_view(place.name).substr(0, kMostFunctionName), options_);
  if (!place.name.empty()) {
    out.add("+");
    add_number(out, {.kind = Value::Kind::hex, .number = place.distance + call_byte});
  }
  out.add(" (");
  add_text(out, place.path.empty() ? "[unknown]" : std::string_view(place.path), options_);
  out.add(")\n");
}

}  // namespace uprobe::format
