// SPDX-License-Identifier: MIT
// The results, one line each, and the conversion from Google Benchmark's.
#pragma once

#include <benchmark/benchmark.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace uprobe::bench {

// Medians and standard deviations over the repetitions, nanoseconds, by the benchmark's name.
class Collector final : public benchmark::BenchmarkReporter {
 public:
  struct Measured {
    double median = 0, deviation = 0;
  };

  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override;

  // Null for a row that was not measured.
  const Measured* find(const std::string& name) const;
  const std::string& failure() const { return failure_; }  // of the first that failed; empty: none

 private:
  std::map<std::string, Measured> measured_;
  std::string failure_;
};

struct Row {
  std::string what;
  std::string value;
  std::string spread = {};                           // of the repetitions, "+-1%"
  std::string over = {};                             // nanoseconds more than the same call without a probe
  std::optional<double> to_trap = {}, to_peer = {};  // ratios: to the bare SIGTRAP handler, to the aim's peer
  std::string aim = {};
  bool met = true;  // only meaningful with an aim
};

std::string render(const std::string& title, const std::vector<Row>& rows);

std::string fixed(double value, int decimals);
std::string grouped(double value);

}  // namespace uprobe::bench
