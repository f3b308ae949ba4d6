// SPDX-License-Identifier: MIT
// The events of a trace.dat, as `trace-cmd report` prints them, to be printed between the hits of a recording.
//
// The file is hostile input to trace-cmd, which reads it in a process of its own, and so are the lines: nothing of one is used but its
// time, and control bytes are escaped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/program_output.h"
#include "engine/base/result.h"
#include "engine/output/formatter.h"
#include "engine/trace/clocks.h"

namespace uprobe::recording {

// The nanoseconds of a line "  zsh-12  [001] d..1.  3.000000004: sched_switch: ..."; nothing: it is no event's first line.
std::optional<std::uint64_t> time_of_line(std::string_view line);
// The events in lines that ForeignTrace::take() has given: one, and before it what was dropped there, as events `dropped`. They refer to
// the lines.
std::vector<format::ForeignEvent> events_in(std::string_view lines);
// The clock that `trace-cmd dump --options` names; refused where there is none, or one that a recording does not hold.
Result<trace::ClockKind> clock_of_options(const std::string& path, std::string_view options);

class ForeignTrace {
 public:
  // Fails where trace-cmd is not installed or cannot read the file.
  static Result<ForeignTrace> open(const std::string& path);

  trace::ClockKind clock() const { return clock_; }
  // The time of the next event, if there is one.
  std::optional<std::uint64_t> next_time() const { return has_next_ ? std::optional(next_ns_) : std::nullopt; }
  // Its lines, each with its newline. Goes on to the next one.
  std::string take();
  // After the last event: fails if trace-cmd did.
  Status finish();

 private:
  ForeignTrace(std::string path, trace::ClockKind clock, ProgramOutput output)
      : path_(std::move(path)), clock_(clock), output_(std::move(output)) {}
  void read_first();

  std::string path_;
  trace::ClockKind clock_;
  ProgramOutput output_;
  bool has_next_ = false;
  std::uint64_t next_ns_ = 0;
  std::string next_line_;  // the first of the next event, with what stands before it
};

}  // namespace uprobe::recording
