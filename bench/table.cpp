// SPDX-License-Identifier: MIT
#include "bench/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cli/text.h"

namespace uprobe::bench {
namespace {

constexpr int kValueWidth = 17, kSpreadWidth = 6, kOverWidth = 10, kRatioWidth = 9, kAimWidth = 22;

std::string right(const std::string& text, int width) {
  const auto size = static_cast<std::size_t>(width);
  return std::string(size - std::min(size, text.size()), ' ') + text;
}

std::string ratio(const std::optional<double>& value) {
  if (!value) return "";
  return *value >= 100 ? grouped(*value) : fixed(*value, *value < 0.1 ? 4 : 2);
}

std::string line(const Row& row, std::size_t width) {
  std::string text = row.what + std::string(width - row.what.size(), ' ') + right(row.value, kValueWidth) +
                     right(row.spread, kSpreadWidth) + right(row.over, kOverWidth) +
                     right(ratio(row.to_trap), kRatioWidth) + right(ratio(row.to_peer), kRatioWidth);
  if (!row.aim.empty()) text += right(row.aim, kAimWidth) + (row.met ? "  PASS" : "  miss");
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

}  // namespace

void Collector::ReportRuns(const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    if (run.error_occurred && failure_.empty()) failure_ = run.benchmark_name() + ": " + run.error_message;
    Measured& measured = measured_[run.run_name.function_name];
    if (run.aggregate_name == "median") measured.median = run.GetAdjustedRealTime();
    if (run.aggregate_name == "stddev") measured.deviation = run.GetAdjustedRealTime();
  }
}

const Collector::Measured* Collector::find(const std::string& name) const {
  const auto found = measured_.find(name);
  return found == measured_.end() ? nullptr : &found->second;
}

std::string fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::string grouped(double value) { return cli::grouped(static_cast<std::uint64_t>(std::llround(value))); }

std::string render(const std::string& title, const std::vector<Row>& rows) {
  std::size_t width = 0;
  for (const Row& row : rows) width = std::max(width, row.what.size());
  std::string text = title + "\n" + std::string(width, ' ') + right("", kValueWidth) + right("+-", kSpreadWidth) +
                     right("over", kOverWidth) + right("x trap", kRatioWidth) + right("x peer", kRatioWidth) +
                     right("aim", kAimWidth) + "\n";
  for (const Row& row : rows) text += line(row, width);
  return text;
}

}  // namespace uprobe::bench
