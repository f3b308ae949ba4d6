// SPDX-License-Identifier: MIT
// Prints a recording as the session would have printed it, or a part of it, in any format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/output/formatter.h"
#include "engine/recording/blocks.h"
#include "engine/types.h"

namespace uprobe::recording {

struct ReplayOptions {
  std::string format = "text";
  trace::ClockKind clock = trace::ClockKind::mono;  // of the times that are printed, and of `from` and `to`
  // A trace.dat whose events are printed between the hits (foreign_trace.h), in text and trace.dat alone. Its clock has to be `clock`; with
  // `takes_merged_clock` it takes the place of that.
  std::string merged;
  bool takes_merged_clock = false;
  format::Files* files = nullptr;  // of a format that writes files (engine/export/files.h)
  bool without_header = false;     // even if the session had one
  bool short_lines = false, raw_strings = false;
  std::optional<std::uint32_t> string_limit;  // else the session's
  std::string events;                         // fnmatch(3), of EVENT or GROUP/EVENT; empty: all
  std::string filter;                         // of all events that have its fields
  std::string task;                           // fnmatch(3), of a name; or the id of a process or a thread
  std::optional<std::uint64_t> from, to;      // nanoseconds, or those of the printed time
  std::uint64_t max_events = 0;               // 0: no limit
  std::uint64_t min_latency = 0;              // as in RunOptions
  std::vector<std::string> counters = {};     // likewise
};

// Returns the events that have lost hits. A filter that none of the events takes is refused before anything is printed.
Result<std::vector<format::Total>> replay(const Recording& recording, const ReplayOptions& options,
                                          const Output& output);

}  // namespace uprobe::recording
