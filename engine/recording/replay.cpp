// SPDX-License-Identifier: MIT
#include "engine/recording/replay.h"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <utility>

#include "engine/export/files.h"
#include "engine/export/formats.h"
#include "engine/output/csv.h"
#include "engine/pictures/counters.h"
#include "engine/program/filter.h"
#include "engine/recording/entries.h"
#include "engine/recording/file_format.h"
#include "engine/recording/foreign_trace.h"
#include "engine/shared/filter.h"
#include "engine/trace/clock_map.h"

namespace uprobe::recording {

namespace {

constexpr std::size_t kFlushBytes = std::size_t{1} << 20;
constexpr unsigned kMostCpus = 4096;  // that a filter can name: the recording may be another machine's

// For a message about fields: an event that has those of all.
program::EventLayout with_all_fields(const std::vector<program::EventLayout>& events) {
  program::EventLayout all;
  for (const program::EventLayout& layout : events)
    for (const program::Field& field : layout.fields)
      if (std::ranges::find(all.fields, field.name, &program::Field::name) == all.fields.end())
        all.fields.push_back(field);
  return all;
}

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
    Event event{.is_wanted = is_wanted(layout.event, layout.group + "/" + layout.event)};
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
  // Times are printed with six digits: what shows a time of the limits is inside.
  bool is_in_time(std::uint64_t ns) const {
    const std::uint64_t shown = (ns / 1000 + (ns % 1000 >= 500 ? 1 : 0)) * 1000;
    return (!options_.from || std::max(ns, shown) >= *options_.from) &&
           (!options_.to || std::min(ns, shown) <= *options_.to);
  }
  bool has(const trace::EventRecord& record, std::string_view comm) const {
    const Event& event = events_[record.type];
    return event.is_wanted && is_in_time(record.ns) && is_of_task(record.tid, record.pid, comm) &&
           passes(event, record, comm);
  }

  bool has(const format::ProcessEvent& event) const {
    return is_in_time(event.ns) && is_of_task(event.pid, event.pid, event.comm);
  }
  bool has(const format::LossSoFar& loss) const {
    return is_in_time(loss.ns) && is_wanted(loss.name.substr(loss.name.find('/') + 1), loss.name);
  }

 private:
  struct Event {
    bool is_wanted = true;
    program::CompiledFilter filter = {};
  };

  bool is_wanted(const std::string& event, const std::string& in_group) const {
    return options_.events.empty() || fits(options_.events, event) || fits(options_.events, in_group);
  }
  bool is_of_task(std::uint32_t tid, std::uint32_t pid, std::string_view comm) const {
    if (options_.task.empty()) return true;
    if (task_number_ && (*task_number_ == tid || *task_number_ == pid)) return true;
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

// The clock of the times that are printed, as the readings of the recording show it.
class ShownClock {
 public:
  ShownClock(trace::ClockKind kind, const std::vector<trace::ClockReading>& readings)
      : map_(kind), readings_(readings) {}

  // `ns` does not decrease.
  std::uint64_t convert(std::uint64_t ns) {
    while (next_ < readings_.size() && (!map_.is_known() || readings_[next_].at(trace::ClockKind::mono) <= ns))
      map_.add(readings_[next_++]);
    return map_.convert(ns);
  }

 private:
  trace::ClockMap map_;
  const std::vector<trace::ClockReading>& readings_;
  std::size_t next_ = 0;
};

Error no_clock(const Recording& recording, const ReplayOptions& options) {
  return Error{.code = Code::usage,
               .text = "the recording does not hold the clock " + std::string(trace::name_of(options.clock)),
               .where = recording.path,
               .help = "--clock=mono"};
}

class Player final : public Listener {
 public:
  Player(const Recording& recording, const ReplayOptions& options, const Output& output, ForeignTrace* foreign)
      : recording_(recording),
        options_(options),
        foreign_(foreign),
        output_(output),
        format_(*format::format_called(options.format)),
        choice_(options) {}

  Status begin(const Settings& settings, const std::vector<program::EventLayout>& events,
               const std::vector<trace::ClockReading>& clocks, SavedSymbols& symbols) override {
    RETURN_IF_ERROR(choose(events));
    RETURN_IF_ERROR(format::check_counters(options_.counters, events));
    if (format_.has_fixed_fields) RETURN_IF_ERROR(format::check_csv_fields(events));
    const auto has_clock = [&](const trace::ClockReading& reading) { return reading.at(options_.clock) != 0; };
    if (options_.clock != trace::ClockKind::mono && std::none_of(clocks.begin(), clocks.end(), has_clock))
      return no_clock(recording_, options_);
    clock_.emplace(options_.clock, clocks);
    formatter_ = format_.make({.escape_control = settings.has(kEscapes) && !options_.raw_strings,
                               .is_short = settings.has(kShortLines) || options_.short_lines,
                               .string_limit = options_.string_limit.value_or(settings.string_limit),
                               .min_latency = options_.min_latency,
                               .symbols = settings.has(kKnowsSymbols) ? &symbols : nullptr,
                               .counters = format::parse_counters(options_.counters),
                               .clock = options_.clock,
                               .files = options_.files,
                               .marks_changes = settings.has(kMarksChanges)});
    has_header_ = !options_.without_header && (settings.has(kHasHeader) || !format_.takes_text);
    for (const program::EventLayout& layout : events) formatter_->add(layout);
    return ok();
  }
  bool hit(const trace::EventRecord& record, std::string_view comm) override {
    trace::EventRecord shown = record;
    shown.ns = clock_->convert(record.ns);
    if (!choice_.has(shown, comm)) return true;
    start();
    add_foreign(shown.ns);
    formatter_->append(shown, comm, text_);
    if (text_.size() >= kFlushBytes && write() != 0) return false;
    if (options_.files != nullptr && options_.files->error() != 0) return false;
    return !is_full(++printed_);
  }
  void course(const CourseEvent& event) override {
    if (!formatter_->wants_course()) return;
    start();
    std::visit([&](const auto& one) { show(one); }, event);
    if (text_.size() >= kFlushBytes) write();
  }
  void end(const std::vector<format::Total>& totals) override { totals_ = totals; }

  // Also of a recording that is not whole.
  std::vector<format::Total> finish() {
    if (!formatter_) return {};
    start();
    if (!is_full(printed_)) add_foreign(~std::uint64_t{0});
    formatter_->end(totals_, text_);
    write();
    return totals_;
  }

 private:
  void show(format::ProcessEvent event) {
    event.ns = clock_->convert(event.ns);
    if (choice_.has(event)) formatter_->process(event, text_);
  }
  void show(format::LossSoFar loss) {
    loss.ns = clock_->convert(loss.ns);
    if (choice_.has(loss)) formatter_->loss(loss, text_);
  }
  // Fails if there is a filter and none of the events takes it.
  Status choose(const std::vector<program::EventLayout>& events) {
    std::optional<Error> refusal;
    bool is_taken = false;
    for (const program::EventLayout& layout : events) {
      const Status taken = choice_.add(layout);
      is_taken = is_taken || taken;
      if (taken || refusal) continue;
      refusal = taken.error();
      if (refusal->help == program::fields_help(layout)) refusal->help = program::fields_help(with_all_fields(events));
    }
    return is_taken || !refusal ? ok() : Status(*refusal);
  }
  bool is_full(std::uint64_t printed) const { return options_.max_events != 0 && printed >= options_.max_events; }
  // The foreign events up to that time, the later ones of two of one time.
  void add_foreign(std::uint64_t ns) {
    while (foreign_ != nullptr && foreign_->next_time() && *foreign_->next_time() <= ns) {
      const bool is_wanted = choice_.is_in_time(*foreign_->next_time());
      const std::string lines = foreign_->take();
      if (is_wanted) show_foreign(lines);
      if (text_.size() >= kFlushBytes) write();
    }
  }
  void show_foreign(const std::string& lines) {
    if (format_.takes_text) return text_.add(lines);
    for (const format::ForeignEvent& event : events_in(lines)) formatter_->foreign(event, text_);
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

  const Recording& recording_;
  const ReplayOptions& options_;
  ForeignTrace* const foreign_;
  const Output& output_;
  const format::Format& format_;
  Choice choice_;
  std::optional<ShownClock> clock_;
  std::unique_ptr<format::Formatter> formatter_;
  format::Buffer text_;
  std::vector<format::Total> totals_;
  std::uint64_t printed_ = 0;
  bool has_header_ = false, has_started_ = false;
};

Error other_clock(const ReplayOptions& options, trace::ClockKind clock) {
  return Error{.code = Code::usage,
               .text = "its times have the clock " + std::string(trace::name_of(clock)) + ", and the hits would have " +
                       std::string(trace::name_of(options.clock)),
               .where = options.merged,
               .help = "--clock=" + std::string(trace::name_of(clock))};
}

Result<std::vector<format::Total>> play(const Recording& recording, const ReplayOptions& options, const Output& output,
                                        ForeignTrace* foreign) {
  Player player(recording, options, output, foreign);
  const Status read = read_recording(recording, player);
  std::vector<format::Total> totals = player.finish();
  if (!read) return read.error();
  return totals;
}

}  // namespace

Result<std::vector<format::Total>> replay(const Recording& recording, const ReplayOptions& options,
                                          const Output& output) {
  if (format::format_called(options.format)->target != format::Target::stream && options.files == nullptr)
    return Error{.code = Code::usage, .text = "the format " + options.format + " needs a place for its files"};
  if (options.merged.empty()) return play(recording, options, output, nullptr);
  auto foreign = ForeignTrace::open(options.merged);
  if (!foreign) return foreign.error();
  ReplayOptions chosen = options;
  if (options.takes_merged_clock) chosen.clock = foreign->clock();
  if (chosen.clock != foreign->clock()) return other_clock(options, foreign->clock());
  auto totals = play(recording, chosen, output, &*foreign);
  const bool is_read = !foreign->next_time();
  if (totals && is_read) RETURN_IF_ERROR(foreign->finish());
  return totals;
}

}  // namespace uprobe::recording
