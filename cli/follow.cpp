// SPDX-License-Identifier: MIT
// See follow.h.
#include "cli/follow.h"

#include <vector>

#include "cli/calls.h"
#include "cli/every.h"
#include "cli/launcher.h"
#include "cli/output_options.h"
#include "cli/progress.h"
#include "cli/text.h"
#include "cli/top.h"

namespace uprobe::cli {

namespace {

void report_failure(const Call& call, TraceSink& sink) {
  std::optional<Error> failure = sink.take_failure();
  if (!failure) return;
  failure->text += ", the program goes on";
  call.diagnostics.error(*failure);
}

void tell_first_ended(const Call& call, std::size_t others) {
  const std::string who = !attaches(call.options)          ? "the program has"
                          : names_one(call.options.attach) ? "the attached process has"
                                                           : "the attached processes have";
  call.diagnostics.line(who + " ended; " +
                        (others == 1 ? "1 traced process goes" : std::to_string(others) + " traced processes go") +
                        " on, and ^C ends the trace");
}

Status open_other(std::optional<TraceSink>& sink, const std::string& path, const Streams& streams) {
  if (path.empty()) return ok();
  Result<TraceSink> opened = TraceSink::open(path, streams);
  if (!opened) return opened.error();
  sink.emplace(opened.take());
  return ok();
}

std::vector<CallSummary> summed_calls(const Call& call) {
  return sums_calls(call.options) ? call.engine.calls() : std::vector<CallSummary>();
}

// Whether the trace has lost its reader, and there is nothing else for which the tracing goes on.
bool is_deserted(const Call& call, const TraceSink& sink) {
  return sink.is_deserted() && call.options.histogram_file.empty() && !sums_calls(call.options);
}

void write_metrics(const Call& call, Sinks& sinks) {
  const bool is_asked = sinks.metrics_socket && sinks.metrics_socket->is_due();
  const bool is_time = sinks.metrics && sinks.metrics->is_due();
  if (!is_asked && !is_time) return;
  const auto progress = call.engine.progress();
  if (!progress) return;
  const std::vector<CallSummary> calls = summed_calls(call);
  if (is_asked) sinks.metrics_socket->show(*progress, calls);
  if (!is_time) return;
  if (const Status written = sinks.metrics->write(*progress, calls); !written) call.diagnostics.error(written.error());
}

// When the tables are shown while the program runs; nothing: at the end alone. With --prometheus the interval is that of its file.
std::optional<Every> table_times(const Options& options) {
  const bool is_theirs = options.interval && has_tables(options) && options.metrics_file.empty();
  return is_theirs ? std::optional<Every>(*options.interval) : std::nullopt;
}

// Whether `snapshot` triggers have asked for what is kept. It says so a round late: the records of those hits have been read by then.
class SnapshotWish {
 public:
  bool take(std::uint32_t asked) { return std::exchange(is_new_, std::exchange(seen_, asked) != asked); }

 private:
  std::uint32_t seen_ = 0;
  bool is_new_ = false;
};

RunOptions run_options(const Call& call, TraceSink& sink) {
  RunOptions options;
  options.max_events = call.options.max_events;
  options.duration = call.options.duration;
  options.raw_strings = call.options.raw_strings;
  options.short_lines = call.options.short_lines;
  options.format = call.options.format;
  options.clock = call.options.clock.value_or(options.clock);
  options.files = sink.files();
  options.counters = call.options.counters;
  options.min_latency = static_cast<std::uint64_t>(call.options.min_latency.count());
  options.records = records(call.options);
  options.record_limit = call.options.record_limit;
  options.header = wants_header(call.options);
  options.until_last = call.options.until_last;
  if (call.options.record_files != 0)
    options.next_file = [&call, &sink] {
      const int err = sink.rotate(call.options.record_files);
      report_failure(call, sink);
      return err;
    };
  return options;
}

}  // namespace

Result<Sinks> Sinks::open(const std::string& output, const Call& call) {
  Result<TraceSink> trace = TraceSink::open(output, call.streams, target_of(call.options));
  if (!trace) return trace.error();
  RETURN_IF_ERROR(check_terminal(call.options, trace->is_terminal()));
  if (call.options.record_files != 0) RETURN_IF_ERROR(trace->check_rotation());
  auto metrics = MetricsFile::open(call.options, visible_pid());
  if (!metrics) return metrics.error();
  auto socket = MetricsSocket::open(call.options, visible_pid());
  if (!socket) return socket.error();
  Sinks sinks{.trace = trace.take(), .metrics = metrics.take(), .metrics_socket = socket.take()};
  RETURN_IF_ERROR(open_other(sinks.histograms, call.options.histogram_file, call.streams));
  RETURN_IF_ERROR(open_other(sinks.calls, call.options.summary_file, call.streams));
  return sinks;
}

Status Sinks::child_started(int pid) {
  RETURN_IF_ERROR(trace.child_started(pid));
  if (histograms) RETURN_IF_ERROR(histograms->child_started(pid));
  return calls ? calls->child_started(pid) : ok();
}

// A blank line separates the records from the first table.
void Sinks::write_histograms(const Call& call) {
  TraceSink& to = histograms ? *histograms : trace;
  if (const std::string text = call.engine.histograms(call.options.raw_strings); !text.empty())
    to.write((histograms ? "" : "\n") + text);
}

void Sinks::show_tables(const Call& call) {
  write_histograms(call);
  if (histograms) histograms->flush();
  trace.write_newest();
  report_failure(call, trace);
  write_calls(call);
}

void Sinks::finish(const Call& call, const std::string& last_lines) {
  write_histograms(call);
  trace.write(last_lines);
  trace.finish();
  report_failure(call, trace);
  if (trace.dropped() != 0 && !call.options.quiet)
    call.diagnostics.line(counted(trace.dropped(), "line was", "lines were") +
                          " too old for the trace, which has the newest (--overflow=overwrite)");
  write_calls(call);
  if (calls) calls->finish();
  if (metrics_socket) {
    metrics_socket->finish(call.engine.summary(), summed_calls(call));
    metrics_socket.reset();
  }
  if (metrics)
    if (const Status written = metrics->finish(call.engine.summary(), summed_calls(call)); !written)
      call.diagnostics.error(written.error());
  if (!histograms) return;
  histograms->finish();
  report_failure(call, *histograms);
}

// To their file, or to standard error unless the user wants to see nothing there.
void Sinks::write_calls(const Call& call) {
  if (!sums_calls(call.options) || (!calls && call.options.quiet)) return;
  const std::vector<CallSummary> rows = call.engine.rows_of_calls();
  const std::string text = call.options.json ? render_calls_json(rows) : render_calls(rows);
  if (!calls) return call.diagnostics.print(text);
  calls->write(text);
  calls->flush();
  report_failure(call, *calls);
}

bool names_one(const Selection& whom) { return whom.pids.size() == 1 && whom.names.empty() && whom.objects.empty(); }

void show_tables_at_signal(const Call& call, Signals& signals) {
  if (has_tables(call.options) || call.options.overflow.newest != 0) signals.show_at_user_signal();
}

// The engine polls `detach_requested` once per round, which is the moment to write the collected text.
Result<Ending> follow(const Call& call, Sinks& sinks, Signals& signals) {
  TraceSink& sink = sinks.trace;
  RunOptions options = run_options(call, sink);
  if (call.options.line_buffered) sink.write_lines();
  if (call.options.format == "csv" && wants_header(call.options)) sink.repeat_first_line();
  if (call.options.overflow.newest != 0) sink.keep_newest(call.options.overflow.newest, call.options.format == "csv");
  options.first_ended = [&](std::size_t others) {
    signals.no_program();
    if (!call.options.quiet) tell_first_ended(call, others);
  };
  if (sinks.metrics_socket)
    if (const Status served = sinks.metrics_socket->serve(); !served) call.diagnostics.error(served.error());
  std::optional<Every> table_time = table_times(call.options);
  show_tables_at_signal(call, signals);
  std::optional<TopView> top;
  if (call.options.top) top.emplace(call.streams, attaches(call.options));
  ProgressView progress(call, sink);
  SnapshotWish snapshot;
  options.detach_requested = [&] {
    sink.flush();
    progress.look();
    report_failure(call, sink);
    if (signals.take_reopen())
      if (const Status reopened = sink.reopen(); !reopened) call.diagnostics.error(reopened.error());
    write_metrics(call, sinks);
    const bool is_asked_for = snapshot.take(call.engine.snapshots());
    const bool is_wanted = signals.take_show() || is_asked_for;
    const bool is_time = table_time && table_time->is_due();
    if ((is_time || is_wanted) && !call.engine.has_clients()) sinks.show_tables(call);
    if (top && signals.is_launcher_stopped()) top->give_back();
    signals.wait_for_launcher();
    const bool has_ended = top && top->look([&] { return call.engine.rows_of_calls(); });
    return has_ended || signals.detach_requested() || is_deserted(call, sink);
  };
  return call.engine.run(options, [&](std::string_view lines) {
    const int err = sink.write(lines);
    report_failure(call, sink);
    return err;
  });
}

}  // namespace uprobe::cli
