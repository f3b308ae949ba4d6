// SPDX-License-Identifier: MIT
// Counts of a session for monitoring, in Prometheus's text exposition format: a file that is written now and then, or a unix socket
// (engine/rings/text_server.h).
//
// The file is always whole: it is made under another name in the same folder, and renamed. It has mode 0644, because those who read it
// (node_exporter) are other users, and it has names and places of events and numbers alone.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/every.h"
#include "cli/options.h"
#include "engine/base/result.h"
#include "engine/rings/text_server.h"
#include "engine/types.h"

namespace uprobe::cli {

// By event; events of one name count together.
struct MetricCounts {
  std::uint64_t hits = 0, lost = 0, missed = 0;
};
using Metrics = std::map<std::string, MetricCounts>;

// `session`: its name or its tool's process id, since all series of a machine must differ. `calls`: of the functions whose calls are
// summed up, a summary each.
std::string render_metrics(const Metrics& metrics, const std::vector<CallSummary>& calls, const std::string& session,
                           bool is_tracing);

// The text of the moment. No count becomes less than it was.
class MetricsText {
 public:
  MetricsText(const Options& options, int pid);

  std::string of(const std::vector<EventProgress>& events, const std::vector<CallSummary>& calls,
                 bool is_tracing = true);
  // At the end.
  std::string last(const Summary& summary, const std::vector<CallSummary>& calls);

 private:
  std::string session_;
  Metrics metrics_;
};

class MetricsFile {
 public:
  // Nothing if none is wanted. Writes the file, so that a path that cannot be written is refused before anything is traced.
  static Result<std::optional<MetricsFile>> open(const Options& options, int pid);

  // Whether it is time to write. Then the next time is an interval later.
  bool is_due() { return !has_failed_ && times_.is_due(); }
  // Fails at the first write that fails, and later does nothing.
  Status write(const std::vector<EventProgress>& events, const std::vector<CallSummary>& calls);
  // At the end.
  Status finish(const Summary& summary, const std::vector<CallSummary>& calls);

 private:
  MetricsFile(std::string path, MetricsText text, std::chrono::nanoseconds interval)
      : path_(std::move(path)), text_(std::move(text)), times_(interval) {}
  Status write(const std::string& text);
  Status replace(const std::string& text) const;

  std::string path_;
  MetricsText text_;
  Every times_;
  bool has_failed_ = false;
};

class MetricsSocket {
 public:
  // Nothing if none is wanted. Programs that connect wait until serve().
  static Result<std::optional<MetricsSocket>> open(const Options& options, int pid);

  Status serve();
  // Whether a program has asked.
  bool is_due() { return server_.is_wanted(); }
  void show(const std::vector<EventProgress>& events, const std::vector<CallSummary>& calls);
  void finish(const Summary& summary, const std::vector<CallSummary>& calls);

 private:
  MetricsSocket(TextServer server, MetricsText text) : server_(std::move(server)), text_(std::move(text)) {}

  TextServer server_;
  MetricsText text_;
};

}  // namespace uprobe::cli
