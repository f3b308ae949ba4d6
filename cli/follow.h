// SPDX-License-Identifier: MIT
// The destinations of a trace, and the time in which it is written.
#pragma once

#include <optional>
#include <string>

#include "cli/call.h"
#include "cli/metrics.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "engine/base/result.h"

namespace uprobe::cli {

// Of the trace; of histograms and of the table of calls, if they have a file of their own; and of counts, if they are wanted.
struct Sinks {
  TraceSink trace;
  std::optional<TraceSink> histograms = {}, calls = {};
  std::optional<MetricsFile> metrics = {};
  std::optional<MetricsSocket> metrics_socket = {};

  static Result<Sinks> open(const std::string& output, const Call& call);
  Status child_started(int pid);
  // `last_lines` are written last.
  void finish(const Call& call, const std::string& last_lines = {});
  // The tables of calls and histograms as they are now.
  void show_tables(const Call& call);

 private:
  void write_histograms(const Call& call);
  void write_calls(const Call& call);
};

// Where there are tables, or newest hits, SIGUSR1 asks for them from now on (signals.h).
void show_tables_at_signal(const Call& call, Signals& signals);

// Reads until the program has ended, or the user or the output ends the tracing.
Result<Ending> follow(const Call& call, Sinks& sinks, Signals& signals);

// Whether the processes that are attached to are one, which the user has named.
bool names_one(const Selection& whom);

}  // namespace uprobe::cli
