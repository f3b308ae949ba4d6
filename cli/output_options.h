// SPDX-License-Identifier: MIT
// The options that say in which format the trace is written, and whether the others go with it.
#pragma once

#include <string>

#include "cli/options.h"
#include "engine/base/result.h"
#include "engine/export/formats.h"

namespace uprobe::cli {

Status add_counter(Options& options, const std::string& text);
bool is_format(const std::string& name);
Status set_format(Options& options, const std::string& name);
Status set_clock(Options& options, const std::string& name);
Status set_metrics_file(Options& options, const std::string& path);
// A recording is written to the place of the trace.
Status settle_recording(Options& options);
// -D: the tool keeps neither standard output nor standard error, which belong to the program.
Status settle_daemonize(const Options& options);
// Whether the machine has the clock. Reads it.
Status check_clock(const Options& options);
// Whether the format can hold what else the options ask for.
Status settle_output(const Options& options);
// --counter goes with formats that show curves; a document has a place of its own.
Status settle_pictures(const Options& options);
// Bytes that are no text do not go to a terminal.
Status check_terminal(const Options& options, bool is_terminal);
// Whether a recording can be printed so; and, for everything else, whether an option is there that is for recordings alone.
Status settle_replay(const Options& options);
Status refuse_replays(const Options& options);

// Whether there are tables of calls or histograms.
bool has_tables(const Options& options);
// Whether the names of the columns are printed first.
bool wants_header(const Options& options);
// Whether lines of text can stand among the records.
bool takes_text(const Options& options);
// What the trace is written to.
format::Target target_of(const Options& options);
bool has_fixed_fields(const Options& options);

}  // namespace uprobe::cli
