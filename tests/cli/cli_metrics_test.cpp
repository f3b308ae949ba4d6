// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "cli/metrics.h"

namespace uprobe::cli {
namespace {

TEST(Metrics, AreInTheTextFormat) {
  EXPECT_EQ(render_metrics({{"uprobes/e", {.hits = 5, .lost = 2, .missed = 1}}, {"g/f", {}}}, {}, "a\"b\\c\n", true),
            "# HELP uprobe_tracing Whether the session traces (1), or has come to its end (0).\n"
            "# TYPE uprobe_tracing gauge\n"
            "uprobe_tracing{session=\"a\\\"b\\\\c\\n\"} 1\n"
            "# HELP uprobe_hits_total Hits of the event, also those that were filtered out or lost.\n"
            "# TYPE uprobe_hits_total counter\n"
            "uprobe_hits_total{session=\"a\\\"b\\\\c\\n\",event=\"g/f\"} 0\n"
            "uprobe_hits_total{session=\"a\\\"b\\\\c\\n\",event=\"uprobes/e\"} 5\n"
            "# HELP uprobe_lost_hits_total Hits that could not be recorded.\n"
            "# TYPE uprobe_lost_hits_total counter\n"
            "uprobe_lost_hits_total{session=\"a\\\"b\\\\c\\n\",event=\"g/f\"} 0\n"
            "uprobe_lost_hits_total{session=\"a\\\"b\\\\c\\n\",event=\"uprobes/e\"} 2\n"
            "# HELP uprobe_missed_returns_total Returns that could not be followed.\n"
            "# TYPE uprobe_missed_returns_total counter\n"
            "uprobe_missed_returns_total{session=\"a\\\"b\\\\c\\n\",event=\"g/f\"} 0\n"
            "uprobe_missed_returns_total{session=\"a\\\"b\\\\c\\n\",event=\"uprobes/e\"} 1\n");
}

TEST(Metrics, CallsAreASummaryInSeconds) {
  const CallSummary work{.event = "work",
                         .place = "/bin/app:0x40",
                         .calls = 5,
                         .returns = 4,
                         .untimed = 1,
                         .total_ns = 2'000'000'030,
                         .p50_ns = 10,
                         .p90_ns = 20,
                         .p99_ns = 20,
                         .max_ns = 2'000'000'000};
  const std::string text = render_metrics({}, {work, {.event = "idle", .place = "p"}}, "s", true);
  const std::string expected =
      "# HELP uprobe_call_duration_seconds Times of the calls of a function that have returned.\n"
      "# TYPE uprobe_call_duration_seconds summary\n"
      "uprobe_call_duration_seconds{session=\"s\",event=\"work\",place=\"/bin/app:0x40\",quantile=\"0.5\"} "
      "0.000000010\n"
      "uprobe_call_duration_seconds{session=\"s\",event=\"work\",place=\"/bin/app:0x40\",quantile=\"0.9\"} "
      "0.000000020\n"
      "uprobe_call_duration_seconds{session=\"s\",event=\"work\",place=\"/bin/app:0x40\",quantile=\"0.99\"} "
      "0.000000020\n"
      "uprobe_call_duration_seconds{session=\"s\",event=\"work\",place=\"/bin/app:0x40\",quantile=\"1\"} 2.000000000\n"
      "uprobe_call_duration_seconds_sum{session=\"s\",event=\"work\",place=\"/bin/app:0x40\"} 2.000000030\n"
      "uprobe_call_duration_seconds_count{session=\"s\",event=\"work\",place=\"/bin/app:0x40\"} 3\n"
      "uprobe_call_duration_seconds_sum{session=\"s\",event=\"idle\",place=\"p\"} 0.000000000\n"
      "uprobe_call_duration_seconds_count{session=\"s\",event=\"idle\",place=\"p\"} 0\n";
  ASSERT_GE(text.size(), expected.size());
  EXPECT_EQ(text.substr(text.size() - expected.size()), expected);
}

class MetricsFiles : public testing::Test {
 protected:
  MetricsFiles() {
    std::filesystem::create_directory(folder_);
    options_.metrics_file = folder_ + "/counts.prom";
  }
  ~MetricsFiles() override { std::filesystem::remove_all(folder_); }

  std::string text() const {
    std::stringstream all;
    all << std::ifstream(options_.metrics_file).rdbuf();
    return all.str();
  }
  bool has(const std::string& line) const { return text().find("\n" + line + "\n") != std::string::npos; }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  const std::string folder_ = testing::TempDir() + "metrics-" + std::to_string(::getpid());
  Options options_;
};

TEST_F(MetricsFiles, AreReadableByAllAndAlone) {
  auto file = MetricsFile::open(options_, 12);
  ASSERT_TRUE(file && *file);
  EXPECT_TRUE(has("uprobe_tracing{session=\"12\"} 1"));
  ASSERT_TRUE((*file)->write({{"g/e", 5, 1, 0}, {"g/e", 2, 0, 0}}, {}));
  EXPECT_TRUE(has("uprobe_hits_total{session=\"12\",event=\"g/e\"} 7")) << text();
  struct stat facts {};
  ASSERT_EQ(::stat(options_.metrics_file.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0644u);
  EXPECT_EQ(files(), 1u);
}

TEST_F(MetricsFiles, ACounterNeverGoesBack) {
  options_.session_name = "web";
  auto file = MetricsFile::open(options_, 12);
  ASSERT_TRUE(file && *file);
  ASSERT_TRUE((*file)->write({{"g/e", 5, 1, 0}}, {}));
  Summary summary;
  summary.probes = {{.name = "g/e", .hits = 9, .disabled = 6, .lost_full = 1, .lost_busy = 1}};
  ASSERT_TRUE((*file)->finish(summary, {}));
  EXPECT_TRUE(has("uprobe_hits_total{session=\"web\",event=\"g/e\"} 5"));
  EXPECT_TRUE(has("uprobe_lost_hits_total{session=\"web\",event=\"g/e\"} 2"));
  EXPECT_TRUE(has("uprobe_tracing{session=\"web\"} 0"));
}

TEST_F(MetricsFiles, WhatCannotBeWrittenIsSaidOnce) {
  auto file = MetricsFile::open(options_, 12);
  ASSERT_TRUE(file && *file);
  std::filesystem::remove_all(folder_);
  const Status first = (*file)->write({{"g/e", 5, 1, 0}}, {});
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().where, options_.metrics_file);
  EXPECT_TRUE((*file)->write({{"g/e", 6, 1, 0}}, {}));
  EXPECT_FALSE((*file)->is_due());
  EXPECT_FALSE(MetricsFile::open(options_, 12));
}

TEST_F(MetricsFiles, NoneAreWrittenUnlessTheyAreWanted) {
  const auto none = MetricsFile::open({}, 12);
  ASSERT_TRUE(none);
  EXPECT_FALSE(*none);
}

TEST_F(MetricsFiles, AnIntervalIsWaitedFor) {
  options_.interval = std::chrono::hours(1);
  auto file = MetricsFile::open(options_, 12);
  ASSERT_TRUE(file && *file);
  EXPECT_FALSE((*file)->is_due());
  options_.interval = std::chrono::nanoseconds(1);
  file = MetricsFile::open(options_, 12);
  ASSERT_TRUE(file && *file);
  EXPECT_TRUE((*file)->is_due());
}

}  // namespace
}  // namespace uprobe::cli
