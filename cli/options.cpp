// SPDX-License-Identifier: MIT
// Option parsing. See options.h.
#include "cli/options.h"

#include <getopt.h>

#include <algorithm>
#include <array>

#include "cli/foreign_places.h"
#include "cli/output_options.h"
#include "cli/pairs.h"
#include "cli/settle.h"
#include "cli/text.h"
#include "cli/usage.h"
#include "cli/values.h"
#include "engine/base/text.h"
#include "engine/spec/bare.h"

namespace uprobe::cli {

namespace {

// getopt's return value for row i of the table, with or without a letter.
constexpr int kRowBase = 1000;
constexpr std::size_t kShownNames = 5;

struct Row {
  char letter;  // 0: long form only
  const char* name;
  int takes;             // no_argument, required_argument, optional_argument
  const char* argument;  // its name in --help
  Status (*apply)(Options&, const std::string& value);
};

template <class T, class U>
Status store(T& into, Result<U> value) {
  if (!value) return value.error();
  into = value.take();
  return ok();
}

Status set_summary_by(Options& options, const std::string& text) {
  if (text != "process") return usage("the table has rows by 'process' alone, or by function", "--summary-by=process");
  options.summary_by_process = true;
  return ok();
}

Status add_probe(Options& options, const std::string& text) {
  const auto value = translated_place(text);
  if (!value) return value.error();
  options.commands.push_back({.kind = CommandKind::define, .name = {}, .source = options.sources.size()});
  options.sources.push_back({ProbeSource::Kind::definition, *value, options.object});
  return ok();
}

Status set_mode(Options& options, Mode mode) {
  if (options.mode != Mode::trace && options.mode != mode)
    return usage(
        "-l, --lines, --vars, --dry-run, --explain, --doctor, --replay, --check, --list-events and --format-file "
        "exclude "
        "each other");
  options.mode = mode;
  return ok();
}

Status add_explained(Options& options, const std::string& value) {
  RETURN_IF_ERROR(add_probe(options, value));
  return set_mode(options, Mode::explain);
}

Status add_return(Options& options, const std::string& value) {
  if (value.starts_with("p:") || value.starts_with("p "))
    return usage("-r takes a place, and a definition that begins with 'p' is of an entry", "-p '" + value + "'");
  return add_probe(options, spec::at_return(value));
}

// --filter, --trigger and --disabled apply to the last -p or -r.
template <class Change>
Status change_probe(Options& options, const Change& change) {
  if (options.sources.empty() || options.sources.back().kind != ProbeSource::Kind::definition)
    return usage("it belongs to the -p before it, and there is none");
  change(options.sources.back());
  return ok();
}

Status add_function(Options& options, const std::string& value) {
  if (value.find('(') == std::string::npos)
    return usage("a function event needs the function's arguments in parentheses", "e.g. -F 'zfree(x64 p, s32 sz)'");
  RETURN_IF_ERROR(add_probe(options, value));
  options.sources.back().is_function = true;
  return ok();
}

// Without a -p it is for a recording, or refused by settle_replay().
Status set_filter(Options& options, const std::string& value) {
  if (options.sources.empty()) return options.replay.filter = value, ok();
  return change_probe(options, [&](ProbeSource& probe) { probe.filter = value; });
}

Status add_trigger(Options& options, const std::string& value) {
  return change_probe(options, [&](ProbeSource& probe) { probe.triggers.push_back(value); });
}

Status set_disabled(Options& options, const std::string&) {
  return change_probe(options, [](ProbeSource& probe) { probe.is_disabled = true; });
}

Status add_file(Options& options, const std::string& value) {
  if (value.empty()) return usage("the file's name is empty");
  options.commands.push_back({.kind = CommandKind::define, .name = {}, .source = options.sources.size()});
  options.sources.push_back({ProbeSource::Kind::file, value, options.object});
  return ok();
}

Status set_name(std::string& into, const std::string& value) {
  if (value.empty()) return usage("the file's name is empty");
  into = value;
  return ok();
}

Status add_command(Options& options, CommandKind kind, const std::string& name = {}) {
  options.commands.push_back({.kind = kind, .name = name});
  return ok();
}

Status set_ring_socket(Options& options, const std::string& path) {
  if (path.empty()) return usage("the socket's path is empty");
  options.ring_socket = full_path(path);
  return ok();
}

Status set_color(Options& options, const std::string& value) {
  if (value == "auto")
    options.color = ColorMode::automatic;
  else if (value == "always")
    options.color = ColorMode::always;
  else if (value == "never")
    options.color = ColorMode::never;
  else
    return usage("'" + value + "' is not one of auto, always, never");
  return ok();
}

Status set_style(Options& options, const std::string& value) {
  if (value == "graph") return set_format(options, value);
  if (value != "event" && value != "short" && value != "2009")
    return usage("'" + value + "' is not one of event, short, 2009, graph");
  options.style = value == "2009" ? spec::Style::kprobes_2009 : spec::Style::event;
  options.short_lines = value == "short";
  return ok();
}

Status set_seccomp(Options& options, const std::string& value) {
  if (value != "read" && value != "trust") return usage("'" + value + "' is not one of read, trust");
  options.attach.trusts_filters = value == "trust";
  return ok();
}

Status set_until(Options& options, const std::string& value) {
  if (value != "first" && value != "last") return usage("'" + value + "' is not one of first, last");
  options.until_last = value == "last";
  return ok();
}

Status add_pids(Options& options, const std::string& value) {
  auto pids = parse_pids(value);
  if (!pids) return pids.error();
  options.attach.pids.insert(options.attach.pids.end(), pids->begin(), pids->end());
  return ok();
}

// The kernel keeps 15 bytes of a name (TASK_COMM_LEN).
Status add_process_name(Options& options, const std::string& value) {
  constexpr std::size_t kMostBytes = 15;
  if (value.empty()) return usage("the name is empty");
  if (value.size() > kMostBytes && value.find_first_of("*?[") == std::string::npos)
    return usage("no process can have the name '" + value + "': the kernel keeps 15 bytes of a name",
                 "--comm='" + value.substr(0, kMostBytes) + "'");
  options.attach.names.push_back(value);
  return ok();
}

Status add_mapped_object(Options& options, const std::string& value) {
  if (value.empty()) return usage("the file's name is empty");
  options.attach.objects.push_back(value);
  return ok();
}

using Text = const std::string&;

constexpr std::array kRows = {
    Row{'p', "probe", required_argument, "DEF", add_probe},
    Row{'r', "returns-of", required_argument, "PLACE", add_return},
    Row{'i', "probes-from", required_argument, "FILE", add_file},
    Row{'F', "function", required_argument, "PROTO", add_function},
    Row{0, "filter", required_argument, "EXPR", set_filter},
    Row{0, "trigger", required_argument, "ACT", add_trigger},
    Row{'k', "stack", no_argument, "", [](Options& o, Text) { return o.stacks = true, ok(); }},
    Row{0, "disabled", no_argument, "", set_disabled},
    Row{'x', "exec", required_argument, "FILE", [](Options& o, Text v) { return set_name(o.object, v); }},
    Row{'P', "pid", required_argument, "PID[,PID]...", add_pids},
    Row{0, "comm", required_argument, "NAME", add_process_name},
    Row{0, "object", required_argument, "FILE", add_mapped_object},
    Row{0, "wait", no_argument, "", [](Options& o, Text) { return o.attach.waits = true, ok(); }},
    Row{0, "join", no_argument, "", [](Options& o, Text) { return o.joins_others = true, ok(); }},
    Row{0, "seccomp", required_argument, "MODE", set_seccomp},
    Row{'f', "follow-forks", no_argument, "", [](Options&, Text) { return ok(); }},
    Row{0, "until", required_argument, "WHICH", set_until},
    Row{'D', "daemonize", no_argument, "", [](Options& o, Text) { return o.daemonize = true, ok(); }},
    Row{0, "force", no_argument, "", [](Options& o, Text) { return o.force = true, ok(); }},
    Row{0, "no-cache", no_argument, "", [](Options& o, Text) { return o.no_cache = true, ok(); }},
    Row{0, "allow-change", no_argument, "", [](Options& o, Text) { return o.allows_change = true, ok(); }},
    Row{0, "skip-refused", no_argument, "", [](Options& o, Text) { return o.skip_refused = true, ok(); }},
    Row{0, "tier", required_argument, "TIER", [](Options& o, Text v) { return store(o.tier, parse_tier(v)); }},
    Row{0, "return", required_argument, "MODE",
        [](Options& o, Text v) { return store(o.returns, parse_return_mode(v)); }},
    Row{0, "format", required_argument, "FORMAT", set_format},
    Row{0, "clock", required_argument, "CLOCK", set_clock},
    Row{0, "style", required_argument, "STYLE", set_style},
    Row{0, "graph", no_argument, "", [](Options& o, Text) { return set_format(o, "graph"); }},
    Row{0, "counter", required_argument, "E:FIELD", add_counter},
    Row{0, "sample", required_argument, "1/N", [](Options& o, Text v) { return store(o.one_in, parse_share(v)); }},
    Row{0, "rate", required_argument, "N/s", [](Options& o, Text v) { return store(o.per_second, parse_rate(v)); }},
    Row{0, "min-latency", required_argument, "TIME",
        [](Options& o, Text v) { return store(o.min_latency, parse_duration(v)); }},
    Row{0, "no-header", no_argument, "", [](Options& o, Text) { return o.no_header = true, ok(); }},
    Row{0, "record", required_argument, "FILE", [](Options& o, Text v) { return set_name(o.record, v); }},
    Row{0, "limit", required_argument, "SIZE",
        [](Options& o, Text v) { return store(o.record_limit, parse_recording_size(v)); }},
    Row{0, "rotate", required_argument, "N",
        [](Options& o, Text v) { return store(o.record_files, parse_file_count(v)); }},
    Row{0, "replay", required_argument, "FILE",
        [](Options& o, Text v) { return o.replayed = v, set_mode(o, Mode::replay); }},
    Row{0, "merge", required_argument, "FILE", [](Options& o, Text v) { return set_name(o.replay.merged, v); }},
    Row{0, "events", required_argument, "GLOB", [](Options& o, Text v) { return o.replay.events = v, ok(); }},
    Row{0, "from", required_argument, "TIME", [](Options& o, Text v) { return store(o.replay.from, parse_seconds(v)); }},
    Row{0, "to", required_argument, "TIME", [](Options& o, Text v) { return store(o.replay.to, parse_seconds(v)); }},
    Row{0, "task", required_argument, "TASK", [](Options& o, Text v) { return o.replay.task = v, ok(); }},
    Row{'o', "output", required_argument, "FILE", [](Options& o, Text v) { return set_name(o.output, v); }},
    Row{0, "line-buffered", no_argument, "", [](Options& o, Text) { return o.line_buffered = true, ok(); }},
    Row{0, "reopen", no_argument, "", [](Options& o, Text) { return o.reopens = true, ok(); }},
    Row{0, "prometheus", required_argument, "FILE", set_metrics_file},
    Row{0, "interval", required_argument, "TIME",
        [](Options& o, Text v) { return store(o.interval, parse_duration(v)); }},
    Row{0, "hist-file", required_argument, "FILE", [](Options& o, Text v) { return set_name(o.histogram_file, v); }},
    Row{'n', "max-events", required_argument, "N",
        [](Options& o, Text v) { return store(o.max_events, parse_count(v)); }},
    Row{'d', "duration", required_argument, "TIME",
        [](Options& o, Text v) { return store(o.duration, parse_duration(v)); }},
    Row{'b', "buffer-size", required_argument, "SIZE",
        [](Options& o, Text v) { return store(o.ring_bytes, parse_ring_size(v)); }},
    Row{0, "overflow", required_argument, "WHAT",
        [](Options& o, Text v) { return store(o.overflow, parse_overflow(v)); }},
    Row{'s', "string-limit", required_argument, "N",
        [](Options& o, Text v) { return store(o.string_limit, parse_string_limit(v)); }},
    Row{'l', "list", optional_argument, "GLOB",
        [](Options& o, Text v) {
          o.list_glob = v;
          static_cast<void>(add_command(o, CommandKind::list));
          return set_mode(o, Mode::list);
        }},
    Row{0, "lines", required_argument, "FUNC",
        [](Options& o, Text v) { return o.function = v, set_mode(o, Mode::lines); }},
    Row{0, "vars", required_argument, "FUNC",
        [](Options& o, Text v) { return o.function = v, set_mode(o, Mode::variables); }},
    Row{0, "dry-run", no_argument, "", [](Options& o, Text) { return set_mode(o, Mode::dry_run); }},
    Row{0, "explain", required_argument, "DEF", add_explained},
    Row{0, "doctor", no_argument, "", [](Options& o, Text) { return set_mode(o, Mode::doctor); }},
    Row{0, "check", no_argument, "", [](Options& o, Text) { return set_mode(o, Mode::check); }},
    Row{0, "strict", no_argument, "", [](Options& o, Text) { return o.strict = true, ok(); }},
    Row{0, "json", no_argument, "", [](Options& o, Text) { return o.json = true, ok(); }},
    Row{0, "list-events", no_argument, "", [](Options& o, Text) { return set_mode(o, Mode::list_events); }},
    Row{0, "format-file", no_argument, "", [](Options& o, Text) { return set_mode(o, Mode::format_file); }},
    Row{0, "profile", no_argument, "", [](Options& o, Text) { return o.profile = true, ok(); }},
    Row{0, "session", required_argument, "NAME",
        [](Options& o, Text v) { return o.session_name = v, v.empty() ? usage("the name is empty") : ok(); }},
    Row{0, "export-rings", required_argument, "PATH", set_ring_socket},
    Row{0, "control", required_argument, "SESSION",
        [](Options& o,
           Text v) { return o.control = v, v.empty() ? usage("a session is a process id or a name") : ok(); }},
    Row{0, "remove", required_argument, "EVENT",
        [](Options& o, Text v) { return add_command(o, CommandKind::remove, v); }},
    Row{0, "disable", optional_argument, "EVENT",
        [](Options& o, Text v) { return add_command(o, CommandKind::disable, v); }},
    Row{0, "enable", optional_argument, "EVENT",
        [](Options& o, Text v) { return add_command(o, CommandKind::enable, v); }},
    Row{0, "reset", optional_argument, "EVENT",
        [](Options& o, Text v) { return add_command(o, CommandKind::reset, v); }},
    Row{0, "info", optional_argument, "EVENT",
        [](Options& o, Text v) { return add_command(o, CommandKind::info, v); }},
    Row{0, "stats", no_argument, "", [](Options& o, Text) { return add_command(o, CommandKind::stats); }},
    Row{0, "clear", no_argument, "", [](Options& o, Text) { return add_command(o, CommandKind::clear); }},
    Row{'c', "summary", no_argument, "", [](Options& o, Text) { return o.calls = CallSums::alone, ok(); }},
    Row{'C', "summary-too", no_argument, "", [](Options& o, Text) { return o.calls = CallSums::too, ok(); }},
    Row{0, "top", no_argument, "", [](Options& o, Text) { return o.top = true, o.calls = CallSums::alone, ok(); }},
    Row{0, "leak", required_argument, "FAMILY", add_leak},
    Row{0, "pair", required_argument, "PAIR", add_pair},
    Row{0, "summary-by", required_argument, "WHAT", set_summary_by},
    Row{0, "summary-file", required_argument, "FILE", [](Options& o, Text v) { return set_name(o.summary_file, v); }},
    Row{0, "raw-strings", no_argument, "", [](Options& o, Text) { return o.raw_strings = true, ok(); }},
    Row{'q', "quiet", no_argument, "", [](Options& o, Text) { return o.quiet = true, ok(); }},
    Row{'v', "verbose", no_argument, "", [](Options& o, Text) { return ++o.verbosity, ok(); }},
    Row{0, "color", required_argument, "WHEN", set_color},
    Row{'V', "version", no_argument, "", [](Options& o, Text) { return o.mode = Mode::version, ok(); }},
    Row{'h', "help", no_argument, "", [](Options& o, Text) { return o.mode = Mode::help, ok(); }},
    Row{0, "attach", required_argument, "PID[,PID]...", add_pids},
};

// "+": the first word that is not an option is the program. ":": distinguishes a missing argument from an unknown option.
std::string letters() {
  std::string text = "+:";
  for (const Row& row : kRows) {
    if (row.letter == 0) continue;
    text += row.letter;
    if (row.takes != no_argument) text += row.takes == required_argument ? ":" : "::";
  }
  return text;
}

std::vector<option> long_options() {
  std::vector<option> table;
  for (std::size_t i = 0; i < kRows.size(); ++i)
    table.push_back({kRows[i].name, kRows[i].takes, nullptr, kRowBase + static_cast<int>(i)});
  table.push_back({});
  return table;
}

const Row* row_of(int returned) {
  if (returned >= kRowBase) return &kRows[static_cast<std::size_t>(returned - kRowBase)];
  const auto* row = std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.letter == returned; });
  return row == kRows.end() ? nullptr : row;
}

std::string spelling(const Row& row, int returned) {
  std::string text(returned >= kRowBase ? "--" : "-");
  if (returned >= kRowBase) return text.append(row.name);
  text += row.letter;
  return text;
}

// NAME of --NAME and --NAME=VALUE.
std::string name_in(const std::string& word) { return word.substr(2, word.find('=') - 2); }

std::vector<std::string> long_names() {
  std::vector<std::string> names;
  names.reserve(kRows.size());
  for (const Row& row : kRows) names.emplace_back(row.name);
  return names;
}

std::string joined(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "--" : ", --") + name;
  return list;
}

// What other tools call it; empty: none of them does.
std::string called_elsewhere(const std::string& name) {
  struct Other {
    std::string_view name, own;
  };
  static constexpr std::array kOthers = {
      Other{"if", "--filter=EXPR"},
      Other{"cond", "--filter=EXPR"},
      Other{"condition", "--filter=EXPR"},
      Other{"where", "--filter=EXPR"},
      Other{"hist", "--trigger=hist:keys=FIELD"},
      Other{"histogram", "--trigger=hist:keys=FIELD"},
      Other{"children", "--follow-forks"},
      Other{"process", "--pid=PID"},
      Other{"probes", "--probe=DEF"},
      Other{"func", "--probe=DEF"},
      Other{"symbol", "--probe=DEF"},
      Other{"entry", "--probe=DEF"},
      Other{"uprobe", "--probe=DEF"},
      Other{"break", "--probe=DEF"},
      Other{"retprobe", "-r DEF"},
      Other{"uretprobe", "-r DEF"},
      Other{"number", "--max-events=N"},
      Other{"max", "--max-events=N"},
      Other{"log", "--output=FILE"},
      Other{"log-file", "--output=FILE"},
      Other{"flame", "--format=flamegraph"},
      Other{"tree", "--format=graph"},
      Other{"symbols", "--list"},
      Other{"functions", "--list"},
      Other{"funcs", "--list"},
      Other{"latency", "--summary"},
      Other{"report", "--replay=FILE"},
      Other{"buffer", "--buffer-size=SIZE"},
      Other{"mmap-pages", "--buffer-size=SIZE"},
  };
  for (const Other& other : kOthers)
    if (name == other.name) return std::string(other.own);
  const std::string format = name.starts_with("format-") ? name.substr(7) : name;
  return is_format(format) ? "--format=" + format : std::string();
}

// The options that the user may have meant: those of other tools, those that begin with the word, else the nearest one.
std::string suggestion(const std::string& name) {
  if (const std::string own = called_elsewhere(name); !own.empty()) return "did you mean '" + own + "'?";
  const std::vector<std::string> all = long_names();
  std::vector<std::string> longer;
  std::copy_if(all.begin(), all.end(), std::back_inserter(longer),
               [&](const std::string& one) { return !name.empty() && one.starts_with(name); });
  if (longer.size() > 1 && longer.size() <= kShownNames) return "it could be " + joined(longer);
  const std::string close = longer.size() == 1 ? longer[0] : nearest(name, all);
  return close.empty() ? "see uprobe-run --help" : "did you mean '--" + close + "'?";
}

Error unknown_long(const std::string& name) { return usage("unknown option '--" + name + "'", suggestion(name)); }

// getopt_long also accepts a unique beginning of a name, but the next version of the tool may have two options that begin so.
bool is_abbreviation(const Row& row, const std::string& word) { return name_in(word) != row.name; }

// "-pid": getopt takes it for -p with a value.
bool is_long_name(const std::string& word) {
  const auto all = long_names();
  return word.size() > 2 && word[1] != '-' && std::find(all.begin(), all.end(), word.substr(1)) != all.end();
}

// For getopt's ':' and '?', with the value that it left in optopt: 0 for an unknown long option.
Error refused_word(int returned, const std::string& word) {
  if (optopt == 0) return unknown_long(name_in(word));
  const Row* row = row_of(optopt);
  if (row == nullptr && is_long_name(word))
    return usage("unknown option '" + word + "'", "did you mean '-" + word + "'?");
  if (row == nullptr)
    return usage("unknown option '-" + std::string(1, static_cast<char>(optopt)) + "'", "see uprobe-run --help");
  if (optopt >= kRowBase && is_abbreviation(*row, word)) return unknown_long(name_in(word));
  const std::string option = "option '" + spelling(*row, optopt) + "' ";
  if (returned == ':') return usage(option + "needs an argument: " + row->argument, "see uprobe-run --help");
  return usage(option + "takes no argument", "see uprobe-run --help");
}

bool is_final(const Options& options) { return options.mode == Mode::help || options.mode == Mode::version; }

// Finds likely typing errors. Not for --check, which gives the answer of uprobe_events to any text.
Status check_definition(const std::string& text) {
  Status result = ok();
  if (is_pid_list(text)) result = usage("-p takes a probe definition; use -P " + text + " to attach");
  if (text.find_first_not_of(" \t") == std::string::npos)
    result = usage("the definition is empty", "e.g. -p 'p:free_hit /bin/zsh:zfree %di'");
  if (result) return result;
  Error error = result.error();
  error.where = "-p";
  return error;
}

}  // namespace

Result<Options> parse_options(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = arguments;
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int argc = static_cast<int>(words.size());
  const std::string short_table = letters();
  const std::vector<option> long_table = long_options();

  Options options;
  optind = 0;  // glibc: starts again
  opterr = 0;
  for (;;) {
    const auto at = static_cast<std::size_t>(std::max(optind, 1));  // also within a word of several letters
    const int returned = ::getopt_long(argc, argv.data(), short_table.c_str(), long_table.data(), nullptr);
    if (returned == -1) break;
    const std::string& word = words[at];
    if (returned == ':' || returned == '?') return refused_word(returned, word);
    const Row* row = row_of(returned);
    if (returned >= kRowBase && is_abbreviation(*row, word)) return unknown_long(name_in(word));
    if (returned < kRowBase && is_long_name(word))
      return usage(
          "'" + word + "' begins with one dash, and would be -" + row->letter + " with '" + word.substr(2) + "'",
          "did you mean '-" + word + "'?");
    const Status applied = row->apply(options, optarg == nullptr ? std::string() : std::string(optarg));
    if (!applied) {
      Error error = applied.error();
      error.where = spelling(*row, returned);
      return error;
    }
    if (is_final(options)) return options;
  }
  for (int i = optind; i < argc; ++i) options.program.push_back(words[static_cast<std::size_t>(i)]);
  const Status settled = settle(options);
  if (!settled) return settled.error();
  return options;
}

Status check_definitions(const Options& options) {
  for (const ProbeSource& source : options.sources) {
    if (source.kind == ProbeSource::Kind::file) continue;
    if (options.style == spec::Style::kprobes_2009 && is_all_blank(source.text)) continue;
    RETURN_IF_ERROR(check_definition(source.text));
  }
  return ok();
}

std::vector<OptionName> option_names() {
  std::vector<OptionName> names;
  names.reserve(kRows.size());
  for (const Row& row : kRows) names.push_back({row.letter, row.name, row.argument, row.takes == required_argument});
  return names;
}

ColorMode early_color(const std::vector<std::string>& arguments) {
  Options options;
  static constexpr std::string_view kName = "--color=";
  for (const std::string& word : arguments) {
    if (word == "--") break;
    if (word.starts_with(kName)) static_cast<void>(set_color(options, word.substr(kName.size())));
  }
  return options.color;
}

}  // namespace uprobe::cli
