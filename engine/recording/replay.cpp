// SPDX-License-Identifier: MIT
#include "engine/recording/replay.h"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <utility>

#include "engine/output/formats.h"
#include "engine/program/filter.h"
#include "engine/recording/entries.h"
#include "engine/recording/file_format.h"
#include "engine/shared/filter.h"

namespace uprobe::recording {

namespace {

constexpr std::size_t kFlushBytes = std::size_t{1} << 20;
constexpr unsigned kMostCpus = 4096;  // that a filter can name: the recording may be another machine's

bool fits(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

std::optional<std::uint32_t> number_in(const std::string& text) {
  std::uint32_t number = 0;
  const auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), number);
  return err == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// Which hits are wanted.
class Choice {
 public:
  explicit Choice(const ReplayOptions& options) : options_(options), task_number_(number_in(options.task)) {}

  // An event without the fields of the filter is not filtered. `taken`: whether it has one.
  Status add(const program::EventLayout& layout) {
    Event event{.is_wanted = options_.events.empty() || fits(options_.events, layout.event) ||
                             fits(options_.events, layout.group + "/" + layout.event)};
    Status compiled = ok();
    if (!options_.filter.empty()) {
      const auto id = static_cast<unsigned>(events_.size() + 1);
      auto filter = program::compile_filter(layout, options_.filter, {.id = id, .cpus = kMostCpus});
      if (!filter) compiled = filter.error();
      if (filter) event.filter = filter.take();
    }
    events_.push_back(std::move(event));
    return compiled;
  }
  bool has(const trace::EventRecord& record, std::string_view comm) const {
    const Event& event = events_[record.type];
    return event.is_wanted && is_in_time(record.ns) && is_of_task(record, comm) && passes(event, record, comm);
  }

 private:
  struct Event {
    bool is_wanted = true;
    program::CompiledFilter filter = {};
  };

  // Times are printed with six digits: what shows a time of the limits is inside.
  bool is_in_time(std::uint64_t ns) const {
    const std::uint64_t shown = (ns / 1000 + (ns % 1000 >= 500 ? 1 : 0)) * 1000;
    return (!options_.from || std::max(ns, shown) >= *options_.from) &&
           (!options_.to || std::min(ns, shown) <= *options_.to);
  }
  bool is_of_task(const trace::EventRecord& record, std::string_view comm) const {
    if (options_.task.empty()) return true;
    if (task_number_ && (*task_number_ == record.tid || *task_number_ == record.pid)) return true;
    return fits(options_.task, std::string(comm));
  }
  static bool passes(const Event& event, const trace::EventRecord& record, std::string_view comm) {
    if (event.filter.tests.empty()) return true;
    std::uint8_t name[shared::kNameBytes] = {};
    std::copy_n(comm.begin(), std::min(comm.size(), sizeof name - 1), name);
    return shared::run_filter({.tests = event.filter.tests.data(),
                               .count = static_cast<std::uint32_t>(event.filter.tests.size()),
                               .texts = reinterpret_cast<const std::uint8_t*>(event.filter.text.data()),
                               .text_bytes = static_cast<std::uint32_t>(event.filter.text.size())},
                              {record.payload.data(), static_cast<std::uint32_t>(record.payload.size()), record.cpu,
                               name}) != shared::Verdict::drop;
  }

  const ReplayOptions& options_;
  const std::optional<std::uint32_t> task_number_;
  std::vector<Event> events_;
};

class Player final : public Listener {
 public:
  Player(const ReplayOptions& options, const Output& output)
      : options_(options), output_(output), format_(*format::format_called(options.format)), choice_(options) {}

  Status begin(const Settings& settings, const std::vector<program::EventLayout>& events,
               SavedSymbols& symbols) override {
    RETURN_IF_ERROR(choose(events));
    formatter_ = format_.make({.escape_control = settings.has(kEscapes) && !options_.raw_strings,
                               .is_short = settings.has(kShortLines) || options_.short_lines,
                               .string_limit = options_.string_limit.value_or(settings.string_limit),
                               .symbols = settings.has(kKnowsSymbols) ? &symbols : nullptr});
    has_header_ = !options_.without_header && (settings.has(kHasHeader) || !format_.takes_text);
    for (const program::EventLayout& layout : events) formatter_->add(layout);
    return ok();
  }
  bool hit(const trace::EventRecord& record, std::string_view comm) override {
    if (!choice_.has(record, comm)) return true;
    start();
    formatter_->append(record, comm, text_);
    if (text_.size() >= kFlushBytes && write() != 0) return false;
    return options_.max_events == 0 || ++printed_ < options_.max_events;
  }
  void end(const std::vector<format::Total>& totals) override { totals_ = totals; }

  // Also of a recording that is not whole.
  std::vector<format::Total> finish() {
    if (!formatter_) return {};
    start();
    formatter_->end(totals_, text_);
    write();
    return totals_;
  }

 private:
  // Fails if there is a filter and none of the events takes it.
  Status choose(const std::vector<program::EventLayout>& events) {
    Status refusal = ok();
    bool is_taken = false;
    for (const program::EventLayout& layout : events) {
      const Status taken = choice_.add(layout);
      is_taken = is_taken || taken;
      if (refusal && !taken) refusal = taken;
    }
    return is_taken ? ok() : refusal;
  }
  void start() {
    if (std::exchange(has_started_, true)) return;
    if (has_header_) formatter_->header(text_);
  }
  int write() {
    formatter_->flush(text_);
    const int error = text_.size() == 0 ? 0 : output_(text_.view());
    text_.clear();
    return error;
  }

  const ReplayOptions& options_;
  const Output& output_;
  const format::Format& format_;
  Choice choice_;
  std::unique_ptr<format::Formatter> formatter_;
  format::Buffer text_;
  std::vector<format::Total> totals_;
  std::uint64_t printed_ = 0;
  bool has_header_ = false, has_started_ = false;
};

}  // namespace

Result<std::vector<format::Total>> replay(const ReplayOptions& options, const Output& output) {
  Player player(options, output);
  const Status read = read_recording(options.path, player);
  std::vector<format::Total> totals = player.finish();
  if (!read) return read.error();
  return totals;
}

}  // namespace uprobe::recording
