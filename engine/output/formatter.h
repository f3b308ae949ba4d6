// SPDX-License-Identifier: MIT
// The interface of an output format, which turns the records of a session into bytes, one after the other. One format per file;
// formats.h has the table of all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/output/buffer.h"
#include "engine/output/course.h"
#include "engine/output/mappings.h"
#include "engine/output/symbols.h"
#include "engine/program/layout.h"
#include "engine/shared/string_data.h"
#include "engine/trace/clocks.h"
#include "engine/trace/event_record.h"
#include "engine/trace/record_run.h"

namespace uprobe::format {

class Files;  // engine/export/files.h
// A field whose numbers are a curve.
struct Counter {
  std::string event, field;  // "[GROUP/]EVENT"
};

// A format takes of them the parts that have a meaning in it.
struct Options {
  bool escape_control =
      false;              // in strings and names (escape.h); else every byte is printed unchanged, as the kernel does
  bool is_short = false;  // without the column of flags, which here are always dots
  std::uint32_t string_limit = shared::kMostString;  // characters of a string that are shown
  std::uint64_t min_latency = 0;  // nanoseconds: shorter calls are not shown, where the format shows calls
  Symbols* symbols = nullptr;     // names code addresses; null: they print as numbers. Must outlive the formatter
  std::vector<Counter> counters = {};
  trace::ClockKind clock = trace::ClockKind::mono;  // of the times that the records have by now
  Files* files = nullptr;                           // of a format that writes files itself; must outlive the formatter
  bool marks_changes = false;  // triggers may change the program: a format with fixed columns has one for that
};

// An event of another tracer, as that one prints it. Hostile input, without control bytes but for newlines between its lines.
struct ForeignEvent {
  std::uint64_t ns = 0;
  std::uint32_t tid = 0, cpu = 0;
  std::string_view comm, name, text;
};

// The counts of an event at the end of the session.
struct Total {
  std::string name;  // "GROUP/EVENT"
  std::uint64_t recorded = 0, lost = 0, missed = 0;
};

// Appends to `out`, which the caller writes and clears after flush(). A record is hostile input: for any payload
// the formatter reads nothing outside of it.
class Formatter {
 public:
  Formatter() = default;
  Formatter(const Formatter&) = delete;
  Formatter& operator=(const Formatter&) = delete;
  virtual ~Formatter() = default;

  // Adds the layout of the next type: before the first record of that type, and, for the events that are known by then, before
  // header(). Several may have the same name.
  virtual void add(const program::EventLayout& layout) = 0;
  // What stands before the first record. Not called where the user wants none of it.
  virtual void header(Buffer&) {}
  virtual void append(const trace::EventRecord& record, std::string_view comm, Buffer& out) = 0;
  // The clocks have been read once more. For a format from which times are converted later.
  virtual void clocks(const trace::ClockReading&, Buffer&) {}
  // Whether append_run() does for all records of a run what append() would do for each of them.
  virtual bool takes_runs() const { return false; }
  virtual void append_run(const trace::RecordRun&, Buffer&) {}
  // Whether it shows the course of the session. What it then gets may be older than records that it has.
  virtual bool wants_course() const { return false; }
  virtual void process(const ProcessEvent&, Buffer&) {}
  virtual void loss(const LossSoFar&, Buffer&) {}
  // Likewise what the processes map.
  virtual bool wants_mappings() const { return false; }
  virtual void mappings(const ProcessMappings&, Buffer&) {}
  // An event of another tracer, no earlier than what has been appended. For a format that shows them (formats.h).
  virtual void foreign(const ForeignEvent&, Buffer&) {}
  // Called before what has been appended is written.
  virtual void flush(Buffer&) {}
  // No further record is taken.
  virtual bool is_full() const { return false; }
  // Where the user has not asked for that, why: a line for the user. Else empty.
  virtual std::string_view why_full() const { return {}; }
  // What comes next begins a further file, which is read alone. After end() and flush().
  virtual void begin_file() {}
  // Called last, if the session came to its end.
  virtual void end(std::span<const Total>, Buffer&) {}
};

}  // namespace uprobe::format
