// SPDX-License-Identifier: MIT
#include "cli/metrics.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "cli/output.h"
#include "cli/output_file.h"
#include "cli/summary.h"
#include "engine/base/exhaustion.h"

namespace uprobe::cli {
namespace {

constexpr std::chrono::seconds kUsualInterval{10};
constexpr mode_t kReadableByAll = 0644;

// prometheus/docs, exposition formats: in the value of a label a backslash, a quote and a newline are escaped.
std::string label_of(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c == '\n' ? "\\n" : std::string(1, c);
  }
  return escaped;
}

struct Series {
  const char *name, *help;
  std::uint64_t MetricCounts::*count;
};
constexpr Series kSeries[] = {
    {"uprobe_hits_total", "Hits of the event, also those that were filtered out or lost.", &MetricCounts::hits},
    {"uprobe_lost_hits_total", "Hits that could not be recorded.", &MetricCounts::lost},
    {"uprobe_missed_returns_total", "Returns that could not be followed.", &MetricCounts::missed},
};

void begin_series(const std::string& name, const char* help, const char* type, std::string& text) {
  text += "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

// prometheus/docs, exposition formats: times are in seconds.
std::string seconds_of(std::uint64_t ns) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  const std::string fraction = std::to_string(kSecond + ns % kSecond);
  return std::to_string(ns / kSecond) + "." + fraction.substr(1);
}

constexpr const char* kCalls = "uprobe_call_duration_seconds";

void add_calls(const CallSummary& calls, const std::string& label, std::string& text) {
  const std::string which = label + ",event=\"" + label_of(calls.event) + "\",place=\"" + label_of(calls.place) + "\"";
  const std::uint64_t timed = calls.returns - std::min(calls.returns, calls.untimed);
  const std::pair<const char*, std::uint64_t> quantiles[] = {
      {"0.5", calls.p50_ns}, {"0.9", calls.p90_ns}, {"0.99", calls.p99_ns}, {"1", calls.max_ns}};
  for (const auto& [quantile, ns] : quantiles)
    if (timed != 0) text += kCalls + which + ",quantile=\"" + quantile + "\"} " + seconds_of(ns) + "\n";
  text += std::string(kCalls) + "_sum" + which + "} " + seconds_of(calls.total_ns) + "\n";
  text += std::string(kCalls) + "_count" + which + "} " + std::to_string(timed) + "\n";
}

}  // namespace

std::string render_metrics(const Metrics& metrics, const std::vector<CallSummary>& calls, const std::string& session,
                           bool is_tracing) {
  const std::string label = "{session=\"" + label_of(session) + "\"";
  std::string text;
  begin_series("uprobe_tracing", "Whether the session traces (1), or has come to its end (0).", "gauge", text);
  text += "uprobe_tracing" + label + "} " + (is_tracing ? "1" : "0") + "\n";
  for (const Series& series : kSeries) {
    begin_series(series.name, series.help, "counter", text);
    for (const auto& [event, counts] : metrics)
      text +=
          series.name + label + ",event=\"" + label_of(event) + "\"} " + std::to_string(counts.*series.count) + "\n";
  }
  if (!calls.empty()) begin_series(kCalls, "Times of the calls of a function that have returned.", "summary", text);
  for (const CallSummary& function : calls) add_calls(function, label, text);
  return text;
}

MetricsText::MetricsText(const Options& options, int pid)
    : session_(options.session_name.empty() ? std::to_string(pid) : options.session_name) {}

std::string MetricsText::of(const std::vector<EventProgress>& events, const std::vector<CallSummary>& calls,
                            bool is_tracing) {
  Metrics now;
  for (const EventProgress& event : events) {
    MetricCounts& counts = now[event.name];
    counts.hits += event.hits, counts.lost += event.lost, counts.missed += event.missed;
  }
  for (const auto& [name, counts] : now) {
    MetricCounts& shown = metrics_[name];
    for (const Series& series : kSeries) shown.*series.count = std::max(shown.*series.count, counts.*series.count);
  }
  return render_metrics(metrics_, calls, session_, is_tracing);
}

std::string MetricsText::last(const Summary& summary, const std::vector<CallSummary>& calls) {
  std::vector<EventProgress> events;
  events.reserve(summary.probes.size());
  for (const ProbeSummary& probe : summary.probes)
    events.push_back({.name = probe.name,
                      .hits = probe.hits - (probe.is_counted ? 0 : probe.disabled),
                      .lost = lost_count(probe),
                      .missed = probe.missed});
  return of(events, calls, false);
}

Result<std::optional<MetricsFile>> MetricsFile::open(const Options& options, int pid) {
  if (options.metrics_file.empty()) return std::optional<MetricsFile>();
  MetricsFile file(options.metrics_file, MetricsText(options, pid), options.interval.value_or(kUsualInterval));
  RETURN_IF_ERROR(file.write({}, {}));
  return std::optional(std::move(file));
}

Status MetricsFile::write(const std::vector<EventProgress>& events, const std::vector<CallSummary>& calls) {
  return write(text_.of(events, calls));
}

Status MetricsFile::finish(const Summary& summary, const std::vector<CallSummary>& calls) {
  return write(text_.last(summary, calls));
}

Status MetricsFile::write(const std::string& text) {
  if (has_failed_) return ok();
  Status replaced = replace(text);
  has_failed_ = !replaced;
  return replaced;
}

Status MetricsFile::replace(const std::string& text) const {
  const auto failed = [this](Error error) {
    error.where = path_;
    return error;
  };
  auto file = open_output(path_ + ".new-" + std::to_string(::getpid()), OpenMode::create);
  if (!file) return failed(file.error());
  const int err = write_patiently(file->file.get(), text);
  Status done = err == 0 && ::fchmod(file->file.get(), kReadableByAll) == 0
                    ? rename_output(*file, path_)
                    : Status(system_error("cannot be written", err != 0 ? err : errno));
  if (done) return done;
  remove_output(*file);
  return failed(done.error());
}

Result<std::optional<MetricsSocket>> MetricsSocket::open(const Options& options, int pid) {
  if (options.metrics_socket.empty()) return std::optional<MetricsSocket>();
  MetricsText text(options, pid);
  auto server = TextServer::open(options.metrics_socket, text.of({}, {}));
  if (!server) return server.error();
  return std::optional(MetricsSocket(server.take(), std::move(text)));
}

Status MetricsSocket::serve() {
  return catch_resource_exhaustion([this] { return server_.serve(), ok(); });
}

void MetricsSocket::show(const std::vector<EventProgress>& events, const std::vector<CallSummary>& calls) {
  server_.put(text_.of(events, calls));
}

void MetricsSocket::finish(const Summary& summary, const std::vector<CallSummary>& calls) {
  server_.put(text_.last(summary, calls));
}

}  // namespace uprobe::cli
