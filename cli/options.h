// SPDX-License-Identifier: MIT
// The command line as data. One table describes every option; its help is in help.cpp.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/diagnostics.h"
#include "cli/values.h"
#include "engine/base/result.h"
#include "engine/ipc/control_protocol.h"
#include "engine/plan/return_mode.h"
#include "engine/plan/tier.h"
#include "engine/recording/replay.h"
#include "engine/spec/probe_spec.h"
#include "engine/types.h"

namespace uprobe::cli {

enum class Mode {
  trace,
  list,
  lines,
  variables,
  dry_run,
  explain,
  check,
  list_events,
  format_file,
  doctor,
  replay,
  control,
  help,
  version,
};

// One -p or -i, in the order given.
struct ProbeSource {
  enum class Kind { definition, file };
  Kind kind = Kind::definition;
  std::string text;            // the definition, or the file's path ("-": standard input)
  std::string default_object;  // the -x before it; empty: none
  std::optional<std::string> filter = {};
  std::vector<std::string> triggers = {};
  bool is_disabled = false;
  bool is_function = false;  // given by -F
};

// Whether calls are summed up in a table: not at all, in place of records (-c), or beside them (-C).
enum class CallSums { none, alone, too };

// The commands of --control, in the order given.
struct ControlCommand {
  CommandKind kind = CommandKind::list;
  std::string name;        // of events; empty: all
  std::size_t source = 0;  // for a definition: index of its source
};

struct Options {
  Mode mode = Mode::trace;
  std::vector<ProbeSource> sources;
  std::string session_name;  // --session
  std::string control;       // the session to change; empty: none
  std::string ring_socket;   // --export-rings: an absolute path; empty: none
  std::vector<ControlCommand> commands;
  std::string object;                                // the last -x
  std::string list_glob;                             // -l; empty: all
  std::string function;                              // for --lines and --vars
  std::string output;                                // -o; empty: standard error
  bool line_buffered = false;                        // each line is written by itself
  bool reopens = false;                              // SIGHUP opens `output` anew
  std::string metrics_file, metrics_socket;          // --prometheus, each absolute; empty: none
  std::optional<std::chrono::nanoseconds> interval;  // between two times that counts or tables are shown
  std::string histogram_file;                        // empty: histograms follow the trace
  std::uint64_t max_events = 0;                      // 0: no limit
  std::chrono::nanoseconds duration{0};              // 0: no limit
  bool until_last = false;                           // --until=last
  bool daemonize = false;                            // -D
  std::optional<std::uint64_t> ring_bytes;
  Overflow overflow;
  std::optional<std::uint32_t> string_limit;  // -s
  bool strict = false;
  bool json = false;     // for --check and -c
  bool profile = false;  // uprobe_profile's lines after the trace
  bool force = false;
  bool no_cache = false;
  bool allows_change = false;
  bool skip_refused = false;
  plan::Tier tier = plan::Tier::automatic;
  plan::ReturnMode returns = plan::ReturnMode::automatic;
  spec::Style style = spec::Style::event;   // for events without a style of their own
  bool short_lines = false;                 // --style=short
  std::string format = "text";              // --format
  std::optional<trace::ClockKind> clock;    // --clock; else mono
  std::vector<std::string> counters;        // --counter
  std::chrono::nanoseconds min_latency{0};  // of the calls that are shown; 0: all
  std::uint32_t one_in = 0;                 // --sample; 0: all
  std::uint32_t per_second = 0;             // --rate; 0: no limit
  bool no_header = false;
  bool stacks = false;  // -k
  CallSums calls = CallSums::none;
  bool top = false;                 // --top
  bool finds_leaks = false;         // --leak
  std::size_t pairs = 0;            // --pair: how many
  bool summary_by_process = false;  // --summary-by
  std::string summary_file;         // of the table of calls; empty: standard error
  std::string record;               // --record: takes the place of `output`; empty: none
  std::uint64_t record_limit = 0;   // --limit; 0: none
  std::string replayed;             // --replay: the recording
  std::uint32_t record_files = 0;   // --rotate; 0: one that is never begun anew
  recording::ReplayOptions replay;
  bool joins_others = false;  // --join
  bool raw_strings = false;
  bool quiet = false;
  int verbosity = 0;
  ColorMode color = ColorMode::automatic;
  Selection attach;                  // running processes; see attaches()
  std::vector<std::string> program;  // argv of the program; may be empty with -l and --dry-run
};

// Whether running processes are meant; else a program is started.
bool attaches(const Options& options);
// Whether a recording is written in place of the trace.
bool records(const Options& options);
// Whether it is about a program or processes that run under the tool, or would: not a list, a running session, a recording.
bool is_for_a_run(const Options& options);

// The word for the file that -l, --lines and --vars look at; with -P as the first process knows it, where no word means its program.
std::string listed_object(const Options& options);

// `arguments` as main() gets them, the tool's own name first. Errors name the option as the user spelt it.
Result<Options> parse_options(const std::vector<std::string>& arguments);

// Finds likely typing errors in definitions. Call it after the program was found: a program that does not exist is the first
// thing to report.
Status check_definitions(const Options& options);

// The colour of messages about the command line itself: by the last readable --color, before anything is checked.
ColorMode early_color(const std::vector<std::string>& arguments);

// An option as the parser knows it.
struct OptionName {
  char letter;  // 0: long form only
  std::string name;
  std::string argument;  // empty: takes none
  bool is_required;      // the argument
};
std::vector<OptionName> option_names();

}  // namespace uprobe::cli
