// SPDX-License-Identifier: MIT
// uprobe-bench-reading: what a record costs the tool after the agent has made it: copying it out of its ring and checking it, and
// then making a line of text of it or putting it into a recording; with and without writing the result to a file.
//
// The rows are measured in turn, in one process, many times; the table has the medians of the thread's CPU time.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/hit_function.h"
#include "bench/table.h"
#include "cli/output.h"
#include "engine/base/fd.h"
#include "engine/output/text.h"
#include "engine/recording/recorder.h"
#include "engine/trace/reader.h"

namespace uprobe::bench {
namespace {

constexpr std::uint64_t kHits = 16'000;  // a megabyte: what a turn of the reader finds in a busy ring
constexpr std::size_t kFlushBytes = 64 * 1024;
constexpr double kRecordAim = 15;  // ns

// How records end: as text or in a recording, in a file or nowhere.
struct Way {
  const char* what;
  bool records;
  bool writes;
};

// A session's rings, reader and formatter, which stay for all repetitions.
class Reading {
 public:
  // Records of two readings must not be in the same rings.
  static Result<std::unique_ptr<Reading>> make(const Way& way, const std::string& path);
  Reading(const Way& way, HitFunction function, Fd file);
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  void measure();
  const Way& way() const { return way_; }
  // CPU time of a record, in nanoseconds.
  double cost();
  bool is_complete() const { return is_complete_ && reader_.counts().recorded[0] == kHits * costs_.size(); }

 private:
  void make_hits();
  void write();
  void write_if_full() {
    if (out_.size() >= kFlushBytes) write();
  }

  const Way way_;
  HitFunction function_;
  Fd file_;
  trace::TaskNames names_;
  trace::Clock clock_ = trace::Clock::start();
  trace::Reader reader_;
  std::unique_ptr<format::Formatter> formatter_;
  format::Buffer out_;
  trace::Sink sink_;
  trace::RunSink run_sink_;
  std::vector<double> costs_;
  bool is_complete_ = true;
  std::uint64_t hits_ = 0;
};

Result<std::unique_ptr<Reading>> Reading::make(const Way& way, const std::string& path) {
  auto function = HitFunction::make("%di %si %dx");
  if (!function) return function.error();
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return system_error("open " + path, errno);
  ::unlink(path.c_str());
  return std::make_unique<Reading>(way, function.take(), std::move(file));
}

Reading::Reading(const Way& way, HitFunction function, Fd file)
    : way_(way), function_(std::move(function)), file_(std::move(file)), reader_(function_.area(), clock_, names_) {
  const std::span<const program::EventLayout> none;
  way.records ? formatter_ = std::make_unique<recording::Recorder>(format::Options())
              : formatter_ = std::make_unique<format::TextFormatter>(none);
  formatter_->add(function_.layout());
  sink_ = [this](const trace::EventRecord& record) {
    formatter_->append(record, names_.name(record.task, record.ns), out_);
    write_if_full();
  };
  if (!formatter_->takes_runs()) return;
  run_sink_ = [this](const trace::RecordRun& run) {
    formatter_->append_run(run, out_);
    write_if_full();
  };
}

void Reading::write() {
  formatter_->flush(out_);
  if (way_.writes && cli::write_patiently(file_.get(), out_.view()) != 0) is_complete_ = false;
  out_.clear();
}

// With an object of 50, a small number and a count, so that records differ as those of a program do.
void Reading::make_hits() {
  const HandHit hit = function_.hit();
  for (std::uint64_t i = 0; i < kHits; ++i) {
    function_.pass({0x7f5a'3c02'1000 + i * 7919 % 50 * 0x1a40, i % 7, hits_++});
    uprobe_bench_paced_hits(&hit, 1, 0);
  }
}

// As a turn of the reader in a session. The file begins anew each time.
void Reading::measure() {
  if (way_.writes && (::ftruncate(file_.get(), 0) != 0 || ::lseek(file_.get(), 0, SEEK_SET) != 0)) is_complete_ = false;
  make_hits();
  const std::uint64_t wanted = reader_.counts().recorded[0] + kHits;
  const double before = thread_cpu_seconds();
  while (reader_.counts().recorded[0] < wanted) reader_.poll(sink_, run_sink_);
  write();
  costs_.push_back((thread_cpu_seconds() - before) * 1e9 / static_cast<double>(kHits));
}

double Reading::cost() {
  const auto middle = costs_.begin() + static_cast<std::ptrdiff_t>(costs_.size() / 2);
  std::nth_element(costs_.begin(), middle, costs_.end());
  return *middle;
}

int tell(const Error& error) {
  std::fprintf(stderr, "uprobe-bench-reading: %s\n", error.text.c_str());
  return 1;
}

using Readings = std::vector<std::unique_ptr<Reading>>;

Result<Readings> make_readings(const std::string& folder) {
  Readings all;
  for (const Way& way : {Way{"text", false, false}, Way{"recording", true, false},
                         Way{"text, into a file", false, true}, Way{"recording, into a file", true, true}}) {
    auto reading = Reading::make(way, folder + "/uprobe-bench-reading-" + std::to_string(::getpid()));
    if (!reading) return reading.error();
    all.push_back(reading.take());
  }
  return all;
}

std::vector<Row> rows_of(const Readings& readings) {
  std::vector<Row> rows;
  double text = 0;
  for (const auto& reading : readings) {
    const Way& way = reading->way();
    const double cost = reading->cost();
    const bool has_aim = way.records && !way.writes;
    rows.push_back({.what = std::string("a record with 3 registers: ") + way.what,
                    .value = fixed(cost, 1) + " ns",
                    .aim = has_aim ? "<= " + fixed(kRecordAim, 0) + " ns" : "",
                    .met = !has_aim || cost <= kRecordAim});
    if (way.records) rows.push_back({.what = "  text costs so many times more", .value = fixed(text / cost, 1)});
    text = cost;
  }
  return rows;
}

int run(int repetitions, const std::string& folder) {
  const auto readings = make_readings(folder);
  if (!readings) return tell(readings.error());
  for (int i = 0; i < repetitions; ++i)
    for (const auto& reading : *readings) reading->measure();
  for (const auto& reading : *readings)
    if (!reading->is_complete()) return tell({.text = "records are missing, or the file could not be written"});
  const std::string title = "thread CPU time, medians of " + std::to_string(repetitions) + " repetitions in turn";
  std::fputs(render(title, rows_of(*readings)).c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace uprobe::bench

// uprobe-bench-reading [REPETITIONS [FOLDER]]
int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 101;
  if (argc > 3 || repetitions < 3) {
    std::fprintf(stderr, "Usage: uprobe-bench-reading [REPETITIONS (at least 3) [FOLDER]]\n");
    return 2;
  }
  return uprobe::bench::run(repetitions, argc > 2 ? argv[2] : "/tmp");
}
