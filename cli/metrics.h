// SPDX-License-Identifier: MIT
// Counts of a session for monitoring: a file in Prometheus's text exposition format, written now and then.
//
// The file is always whole: it is made under another name in the same folder, and renamed. It has mode 0644, because those who read it
// (node_exporter) are other users, and it has names and places of events and numbers alone.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/every.h"
#include "cli/options.h"
#include "engine/base/result.h"
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

class MetricsFile {
 public:
  // Nothing if none is wanted. Writes the file, so that a path that cannot be written is refused before anything is traced.
  static Result<std::optional<MetricsFile>> open(const Options& options, int pid);

  // Whether it is time to write. Then the next time is an interval later.
  bool is_due() { return !has_failed_ && times_.is_due(); }
  // No count becomes less than it was. Fails at the first write that fails, and later does nothing.
  Status write(const std::vector<EventProgress>& events, const std::vector<CallSummary>& calls);
  // At the end.
  Status finish(const Summary& summary, const std::vector<CallSummary>& calls);

 private:
  MetricsFile(std::string path, std::string session, std::chrono::nanoseconds interval)
      : path_(std::move(path)), session_(std::move(session)), times_(interval) {}
  Status write(const std::vector<EventProgress>& events, const std::vector<CallSummary>& calls, bool is_tracing);
  Status replace(const std::string& text) const;

  std::string path_, session_;
  Every times_;
  Metrics metrics_;
  bool has_failed_ = false;
};

}  // namespace uprobe::cli
