// SPDX-License-Identifier: MIT
#include "cli/output_options.h"

#include <algorithm>
#include <string_view>

#include "engine/export/formats.h"
#include "engine/pictures/counters.h"

namespace uprobe::cli {
namespace {

constexpr const char* kText = "text";
constexpr const char* kGraph = "graph";

bool is_histogram(const std::string& trigger) { return trigger.starts_with("hist"); }

bool has_histogram(const ProbeSource& source) {
  return std::any_of(source.triggers.begin(), source.triggers.end(), is_histogram);
}

// Whether no record is expected: the events only count into histograms.
bool only_counts(const Options& options) {
  if (options.calls == CallSums::alone) return true;
  const auto& all = options.sources;
  return !all.empty() && std::all_of(all.begin(), all.end(), [](const ProbeSource& source) {
    return source.is_disabled && has_histogram(source);
  });
}

Error refused(const Options& options, const std::string& text, const std::string& help) {
  const std::string option = records(options) ? "--record" : "--format=" + options.format;
  return Error{.code = Code::usage, .text = text, .where = option, .help = help};
}

// A snapshot trigger asks for what otherwise comes at the end.
Status check_snapshots(const Options& options) {
  const bool has_any = std::ranges::any_of(options.sources, [](const ProbeSource& source) {
    return std::ranges::any_of(source.triggers, [](const std::string& text) { return text.starts_with("snapshot"); });
  });
  if (!has_any || options.overflow.newest != 0 || has_tables(options)) return ok();
  return Error{.code = Code::usage,
               .text = "a snapshot writes what is kept until then, and nothing is kept",
               .where = "--trigger=snapshot",
               .help = "--overflow=overwrite keeps the newest lines, -c and hist triggers keep tables"};
}

Error daemonize_error(const std::string& text) { return Error{.code = Code::usage, .text = text}; }

Status settle_counters(const Options& options) {
  if (options.counters.empty() || format::format_called(options.format)->shows_counters) return ok();
  return Error{.code = Code::usage,
               .text = "--format=" + options.format + " has no place for curves",
               .where = "--counter",
               .help = "--format=html or chrome"};
}

// Standard error has messages, too, and standard output may be the program's.
Status settle_document(const Options& options) {
  const bool has_place = !options.output.empty() || options.mode == Mode::replay || attaches(options);
  if (has_place || options.mode != Mode::trace || !format::format_called(options.format)->is_document) return ok();
  return refused(options, "it is a file, and standard error has other lines", "-o FILE");
}

// Whether the output can be taken apart between two lines.
Status check_lines(const Options& options) {
  const std::string option = options.reopens ? "--reopen" : "--line-buffered";
  const auto refused_option = [&](const std::string& text, const std::string& help) {
    return Error{.code = Code::usage, .text = text, .where = option, .help = help};
  };
  if (!options.reopens && !options.line_buffered) return ok();
  if (records(options)) return refused_option("a recording has no lines", "--rotate=N begins further files of it");
  const format::Format& format = *format::format_called(options.format);
  const bool is_whole = options.format == "chrome" || (options.reopens && options.format == "folded");
  if (format.is_document || format.target != format::Target::stream || is_whole)
    return refused_option("--format=" + options.format + " is one whole from begin to end", "drop one of them");
  if (options.reopens && (options.output.empty() || options.output == "-"))
    return refused_option("it is for the file of -o", "-o FILE");
  return ok();
}

// --overflow=overwrite is for traces of lines that can wait in memory.
Status check_newest(const Options& options, const format::Format& format) {
  const bool is_lines =
      !records(options) && !format.is_document && !format.is_binary && format.target == format::Target::stream;
  if (options.overflow.newest == 0 || (is_lines && !options.line_buffered)) return ok();
  return Error{.code = Code::usage,
               .text = "overwrite keeps the newest lines in memory, and this is no trace of lines that can wait there",
               .where = "--overflow",
               .help = "--format=text, json, csv or perf, without --line-buffered"};
}

}  // namespace

Status add_counter(Options& options, const std::string& text) {
  if (const auto counter = format::parse_counter(text); !counter) return counter.error();
  options.counters.push_back(text);
  return ok();
}

bool is_format(const std::string& name) { return format::format_called(name) != nullptr; }

Status set_format(Options& options, const std::string& name) {
  if (format::format_called(name) == nullptr)
    return Error{.code = Code::usage, .text = "'" + name + "' is not one of " + format::format_names()};
  if (options.format != kText && options.format != name && (options.format == kGraph || name == kGraph))
    return Error{.code = Code::usage, .text = "a graph is text, and not " + (name == kGraph ? options.format : name)};
  options.format = name;
  return ok();
}

Status set_clock(Options& options, const std::string& name) {
  const auto clock = trace::clock_called(name);
  if (!clock) return Error{.code = Code::usage, .text = "'" + name + "' is not one of " + trace::clock_names()};
  options.clock = *clock;
  return ok();
}

Status check_clock(const Options& options) {
  if (options.clock != trace::ClockKind::global || trace::ClockReader(true).read().at(*options.clock) != 0) return ok();
  return Error{.code = Code::refused,
               .text = "the kernel does not tell its scheduler clock to this user",
               .where = "--clock=global",
               .help = "--clock=mono, or lower /proc/sys/kernel/perf_event_paranoid to 2"};
}

Status set_metrics_file(Options& options, const std::string& path) {
  constexpr std::string_view kSocket = "unix:";
  const bool is_socket = path.starts_with(kSocket);
  const std::string name = path.substr(is_socket ? kSocket.size() : 0);
  if (name.empty())
    return Error{.code = Code::usage,
                 .text = "the counts go to a file or a socket",
                 .help = "--prometheus=FILE.prom, --prometheus=unix:PATH"};
  (is_socket ? options.metrics_socket : options.metrics_file) = full_path(name);
  return ok();
}

Status settle_recording(Options& options) {
  if (!records(options)) return ok();
  if (!options.output.empty()) return refused(options, "the recording takes the place of the trace", "drop -o");
  options.output = options.record;
  return ok();
}

Status settle_target(const Options& options) {
  const format::Target target = target_of(options);
  if (target == format::Target::stream || (!options.output.empty() && options.output != "-")) return ok();
  const bool is_folder = target == format::Target::folder;
  return refused(options, is_folder ? "it is a folder of files" : "it is a file in which the tool writes at any place",
                 is_folder ? "-o FOLDER" : "-o FILE");
}

Status settle_daemonize(const Options& options) {
  if (!options.daemonize) return ok();
  if (options.mode != Mode::trace) return daemonize_error("-D is for a program that is started, and none is");
  if (attaches(options)) return daemonize_error("-D is for a program that is started, and attaching starts none");
  if (options.output.empty() || options.output == "-")
    return daemonize_error("-D needs -o FILE: standard output and standard error are the program's alone");
  if (options.histogram_file == "-")
    return daemonize_error("with -D --hist-file needs a file: standard output is the program's");
  return ok();
}

Status settle_output(const Options& options) {
  const format::Format& format = *format::format_called(options.format);
  if (records(options) && options.format != kText)
    return refused(options, "a recording can be printed in any format later",
                   "--replay=FILE --format=" + options.format);
  if (records(options) && options.clock)
    return refused(options, "a recording can be printed with any clock later",
                   "--replay=FILE --clock=" + std::string(trace::name_of(*options.clock)));
  if (options.record_limit != 0 && !records(options))
    return Error{.code = Code::usage, .text = "it is for a recording", .where = "--limit", .help = "--record=FILE"};
  RETURN_IF_ERROR(settle_target(options));
  RETURN_IF_ERROR(check_lines(options));
  if (options.interval && options.metrics_file.empty() && !has_tables(options))
    return Error{.code = Code::usage,
                 .text = "it is for tables and counts",
                 .where = "--interval",
                 .help = "-c, --trigger=hist:... or --prometheus=FILE"};
  RETURN_IF_ERROR(check_newest(options, format));
  RETURN_IF_ERROR(check_snapshots(options));
  if (options.record_files != 0 && options.record_limit == 0)
    return Error{.code = Code::usage,
                 .text = "a further file begins where one is full, and files have no limit",
                 .where = "--rotate",
                 .help = "--limit=SIZE"};
  if (takes_text(options)) return ok();
  if (!records(options) && (options.short_lines || options.style != spec::Style::event))
    return refused(options, "--style is for lines of text", "drop one of them");
  const auto& all = options.sources;
  if (options.histogram_file.empty() && std::any_of(all.begin(), all.end(), has_histogram))
    return refused(options, "there is no place for the tables of hist triggers", "--hist-file=FILE");
  if (options.daemonize && !records(options) && !format.tells_losses)
    return refused(options, "-D leaves no place to report losses", "--format=" + std::string(kText));
  return ok();
}

Status settle_pictures(const Options& options) {
  RETURN_IF_ERROR(settle_counters(options));
  return settle_document(options);
}

bool has_tables(const Options& options) {
  return options.calls != CallSums::none || std::ranges::any_of(options.sources, has_histogram);
}

Status check_terminal(const Options& options, bool is_terminal) {
  if (!is_terminal || records(options) || !format::format_called(options.format)->is_binary) return ok();
  return refused(options, "it is no text for a terminal", "-o FILE");
}

Status settle_replay(const Options& options) {
  const auto usage = [](const std::string& text) {
    return Error{.code = Code::usage, .text = text, .where = "--replay", .help = "e.g. uprobe-run --replay=FILE"};
  };
  if (!options.sources.empty() || !options.program.empty() || attaches(options))
    return usage("a recording is printed: no program, process or probe goes with it");
  if (!options.metrics_file.empty() || !options.metrics_socket.empty())
    return usage("--prometheus is for traced programs");
  if (options.reopens) return usage("--reopen is for a trace that is being written");
  if (records(options) || options.record_limit != 0 || options.record_files != 0)
    return usage("a recording is printed, and --record makes one");
  RETURN_IF_ERROR(settle_target(options));
  if (!options.replay.merged.empty() && !takes_text(options) && !format::format_called(options.format)->shows_foreign)
    return Error{.code = Code::usage,
                 .text = "events are merged into text and trace.dat alone",
                 .where = "--merge",
                 .help = "--format=text"};
  if (options.stacks) return usage("a recording has the stacks that were recorded, and -k records them");
  if (options.style != spec::Style::event) return usage("the recording has the style of its events");
  if (options.daemonize || !options.histogram_file.empty()) return usage("-D and --hist-file are for traced programs");
  return ok();
}

Status refuse_replays(const Options& options) {
  const recording::ReplayOptions& replay = options.replay;
  if (!replay.filter.empty())
    return Error{.code = Code::usage, .text = "it belongs to the -p before it, and there is none", .where = "--filter"};
  if (!replay.merged.empty())
    return Error{.code = Code::usage,
                 .text = "a trace of the kernel goes with a recording, when both have ended",
                 .where = "--merge",
                 .help = "--record=FILE, then --replay=FILE --merge=" + replay.merged};
  if (replay.events.empty() && replay.task.empty() && !replay.from && !replay.to) return ok();
  return Error{.code = Code::usage,
               .text = "--events, --task, --from and --to choose from a recording",
               .help = "--replay=FILE"};
}

bool wants_header(const Options& options) {
  if (options.no_header) return false;
  return !format::format_called(options.format)->takes_text ||
         (!options.quiet && !options.short_lines && !only_counts(options));
}

bool takes_text(const Options& options) {
  return !records(options) && format::format_called(options.format)->takes_text;
}

format::Target target_of(const Options& options) {
  return records(options) ? format::Target::stream : format::format_called(options.format)->target;
}

bool has_fixed_fields(const Options& options) { return format::format_called(options.format)->has_fixed_fields; }

}  // namespace uprobe::cli
