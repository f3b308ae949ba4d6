// SPDX-License-Identifier: MIT
#include "engine/session/recipient.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>
#include <variant>

#include "engine/export/files.h"
#include "engine/export/formats.h"
#include "engine/pictures/counters.h"
#include "engine/recording/raw_records.h"
#include "engine/recording/recorder.h"
#include "engine/service/process_watch.h"
#include "engine/trace/clock_map.h"
#include "engine/trace/clocks.h"

namespace uprobe {
namespace {

// The printer writes its text out in the middle of a turn only beyond this size. Slow output belongs between turns, when
// another thread can read.
constexpr std::size_t kFlushBytes = std::size_t{16} << 20;

std::vector<format::Total> totals_of(const Summary& summary) {
  std::vector<format::Total> totals;
  for (const ProbeSummary& probe : summary.probes)
    totals.push_back({.name = probe.name,
                      .recorded = probe.recorded,
                      .lost = probe.lost_full + probe.lost_too_big + probe.lost_busy + probe.lost_to_reader_lag,
                      .missed = probe.missed});
  return totals;
}

struct Writer {
  std::unique_ptr<format::Formatter> formatter;
  bool tells_losses;
};

Writer writer_for(const RunOptions& options, const format::Options& how) {
  if (options.records) return {std::make_unique<recording::Recorder>(how, options.record_limit), true};
  const format::Format& format = *format::format_called(options.format);
  return {format.make(how), format.tells_losses};
}

// The clocks of a run: read where the output has their times, or holds what is needed to convert its times later.
class Clocks {
 public:
  explicit Clocks(const RunOptions& options)
      : is_used_(options.records || options.clock != trace::ClockKind::mono),
        reader_(options.records || options.clock == trace::ClockKind::global),
        map_(options.clock) {}

  // Often at first, since the rate of a clock is known the better the longer it was measured; later once a second.
  std::optional<trace::ClockReading> read_when_due() {
    const auto now = std::chrono::steady_clock::now();
    if (!is_used_ || now < due_) return std::nullopt;
    due_ = now + wait_;
    wait_ = std::min<std::chrono::nanoseconds>(2 * wait_, std::chrono::seconds(1));
    const trace::ClockReading reading = reader_.read();
    map_.add(reading);
    return reading;
  }
  trace::EventRecord shown(trace::EventRecord record) {
    record.ns = shown(record.ns);
    return record;
  }
  std::uint64_t shown(std::uint64_t ns) { return map_.convert(ns); }

 private:
  const bool is_used_;
  trace::ClockReader reader_;
  trace::ClockMap map_;
  std::chrono::steady_clock::time_point due_{};
  std::chrono::nanoseconds wait_ = std::chrono::milliseconds(20);
};

// Turns records into text during a run.
class Printer : public Recipient {
 public:
  Printer(const std::vector<Probe>& probes, const RunOptions& options, const Output& output, std::uint32_t string_limit,
          format::Symbols* symbols, bool marks_changes)
      : probes_(probes),
        options_(options),
        output_(output),
        writer_(writer_for(options, {.escape_control = !options.raw_strings,
                                     .is_short = options.short_lines,
                                     .string_limit = string_limit,
                                     .min_latency = options.min_latency,
                                     .symbols = symbols,
                                     .counters = format::parse_counters(options.counters),
                                     .clock = options.clock,
                                     .files = options.files,
                                     .marks_changes = marks_changes})),
        clocks_(options) {}

  void learn_events() override {
    const bool is_first = known_ == 0;
    for (; known_ < probes_.size(); ++known_) writer_.formatter->add(probes_[known_].program.layout);
    if (is_first && options_.header) writer_.formatter->header(text_);
    if (const auto reading = clocks_.read_when_due()) writer_.formatter->clocks(*reading, text_);
  }
  void take(const trace::EventRecord& record, std::string_view task) override {
    if (is_full()) return;
    ++printed_, ++pending_;
    if (options_.max_events != 0 || options_.records) count(record.type);
    writer_.formatter->append(clocks_.shown(record), task, text_);
    end_record();
  }
  bool takes_runs() const override { return options_.max_events == 0 && writer_.formatter->takes_runs(); }
  void take_run(const trace::RecordRun& run) override {
    if (is_full()) return;
    printed_ += run.count, pending_ += run.count;
    if (options_.records && !options_.next_file) count(run);
    writer_.formatter->append_run(run, text_);
    end_record();
  }
  bool wants_course() const override { return writer_.formatter->wants_course(); }
  bool wants_mappings() const override { return writer_.formatter->wants_mappings(); }
  void take_course(const CourseRelay::Item& item) override {
    if (!is_full()) std::visit([&](const auto& one) { show(one); }, item);
  }
  void end_batch() override {
    writer_.formatter->flush(text_);
    if (text_.size() != 0 && !broken_) note_error(output_(text_.view()));
    if (options_.files != nullptr && options_.files->error() != 0) note_error(options_.files->error());
    if (is_failed_) unwritten_ += pending_;
    pending_ = 0;
    text_.clear();
  }
  void end(const std::function<Summary()>& summary) override {
    std::vector<format::Total> totals;
    if (writer_.tells_losses) totals = totals_of(summary());
    writer_.formatter->end(totals, text_);
    end_batch();
  }
  bool is_broken() const override { return broken_; }
  bool is_full() const override {
    return (options_.max_events != 0 && printed_ >= options_.max_events) ||
           (writer_.formatter->is_full() && !options_.next_file);
  }
  std::string_view why_full() const override { return writer_.formatter->why_full(); }
  std::vector<std::uint64_t> taken() const override { return taken_; }
  std::uint64_t unwritten() const override { return unwritten_; }

 private:
  void show(format::ProcessEvent event) {
    event.ns = clocks_.shown(event.ns);
    writer_.formatter->process(event, text_);
  }
  void show(format::LossSoFar loss) {
    loss.ns = clocks_.shown(loss.ns);
    writer_.formatter->loss(loss, text_);
  }
  void show(const format::ProcessMappings& mappings) { writer_.formatter->mappings(mappings, text_); }
  // Nothing is lost for a reader that has gone away.
  void note_error(int error) {
    broken_ = error != 0;
    is_failed_ = broken_ && error != EPIPE;
  }
  void end_record() {
    if (text_.size() >= kFlushBytes) end_batch();
    if (options_.next_file && writer_.formatter->is_full()) begin_file();
  }
  // The file before it says that it is whole; losses are in the last one alone.
  void begin_file() {
    writer_.formatter->end({}, text_);
    end_batch();
    if (!broken_) note_error(options_.next_file());
    writer_.formatter->begin_file();
  }
  void count(std::size_t event) { count(event, 1); }
  void count(std::size_t event, std::uint64_t hits) {
    if (taken_.size() <= event) taken_.resize(event + 1);
    taken_[event] += hits;
  }
  // Mostly many records of one event come one after the other.
  void count(const trace::RecordRun& run) {
    std::uint16_t event = 0, next = 0;
    std::uint64_t hits = 0;
    recording::each_checked(run.records, [&](const std::uint8_t* record) {
      std::memcpy(&next, record + sizeof(shared::RecordHead) + offsetof(shared::PayloadHead, type), sizeof next);
      if (next != event) count(event, std::exchange(hits, 0)), event = next;
      ++hits;
    });
    count(event, hits);
  }

  const std::vector<Probe>& probes_;  // grows while the session runs
  std::size_t known_ = 0;
  const RunOptions& options_;
  const Output& output_;
  const Writer writer_;
  Clocks clocks_;
  format::Buffer text_;
  std::uint64_t printed_ = 0, pending_ = 0, unwritten_ = 0;  // all, those in `text_`, those that it has lost
  std::vector<std::uint64_t> taken_;                         // by event, where there is a limit
  bool broken_ = false, is_failed_ = false;
};

class Forwarder : public Recipient {
 public:
  Forwarder(const std::vector<Probe>& probes, const RecordSink& sink) : probes_(probes), sink_(sink) {}

  void learn_events() override {
    while (layouts_.size() < probes_.size()) layouts_.push_back(probes_[layouts_.size()].program.layout);
  }
  void take(const trace::EventRecord& record, std::string_view task) override {
    if (record.type < layouts_.size()) sink_(record, layouts_[record.type], task);
  }

 private:
  const std::vector<Probe>& probes_;  // read in learn_events() alone: another thread may add events during take()
  std::vector<program::EventLayout> layouts_;
  const RecordSink& sink_;
};

}  // namespace

bool LeaveWish::is_over_time() const {
  return options_.duration.count() != 0 && std::chrono::steady_clock::now() - started_ >= options_.duration;
}

bool LeaveWish::is_there() const {
  return recipient_.is_full() || (minds_broken_ && recipient_.is_broken()) || is_over_time() ||
         (options_.detach_requested && options_.detach_requested());
}

void OwnRecords::begin_queue() {
  passed_over_ = std::exchange(recipient_, nullptr);
  queue_.emplace();
  relay_.emplace();
}

void OwnRecords::end_queue() {
  queue_.reset();
  relay_.reset();
  recipient_ = passed_over_;
}

void OwnRecords::learn_events() {
  if (recipient_ != nullptr) recipient_->learn_events();
}

void OwnRecords::take(std::uint32_t event, const trace::EventRecord& record, std::string_view task) {
  if (watch_ != nullptr && !is_discarding_) watch_->see(record.pid, record.ns, task);
  if (queue_) {
    if (!is_discarding_) queue_->take({event, record, task});
  } else if (recipient_ != nullptr) {
    recipient_->take(record, task);
  }
}

void OwnRecords::take_run(const trace::RecordRun& run) {
  if (watch_ != nullptr) watch_->see_run(run);
  recipient_->take_run(run);
}

void OwnRecords::tell_course(const CourseRelay::Item& item) {
  if (relay_ && !is_discarding_) relay_->take(item);
  if (recipient_ != nullptr) recipient_->take_course(item);
}

void OwnRecords::end_batch() {
  if (recipient_ != nullptr) recipient_->end_batch();
}

void OwnRecords::tell() {
  if (queue_) queue_->tell();
}

std::unique_ptr<Recipient> make_printer(const std::vector<Probe>& probes, const RunOptions& options,
                                        const Output& output, std::uint32_t string_limit, format::Symbols* symbols,
                                        bool marks_changes) {
  return std::make_unique<Printer>(probes, options, output, string_limit, symbols, marks_changes);
}

std::unique_ptr<Recipient> make_forwarder(const std::vector<Probe>& probes, const RecordSink& sink) {
  return std::make_unique<Forwarder>(probes, sink);
}

}  // namespace uprobe
