// SPDX-License-Identifier: MIT
#include "engine/recording/foreign_trace.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "engine/base/regular_file.h"
#include "engine/output/escape.h"

namespace uprobe::recording {

namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::uint64_t kSecond = 1'000'000'000;
// Lines of one event, and of a file's options.
constexpr std::size_t kMostLines = 1024, kMostOptionLines = 65'536;
constexpr std::size_t kMostOptionBytes = 4 << 20;

std::string shown(const std::string& line) { return format::escaped(line) + "\n"; }

std::optional<std::uint64_t> number_of(std::string_view digits) {
  std::uint64_t number = 0;
  const auto [end, err] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return err == std::errc() && !digits.empty() && end == digits.data() + digits.size() ? std::optional(number)
                                                                                       : std::nullopt;
}

std::string_view take_digits(std::string_view& text) {
  const std::string_view digits = text.substr(0, text.find_first_not_of(kDigits));
  text.remove_prefix(digits.size());
  return digits;
}

void skip_blanks(std::string_view& text) { text.remove_prefix(std::min(text.find_first_not_of(' '), text.size())); }

// "3.000000004: ", "3.000004: ", or nanoseconds alone, where trace-cmd does not know the clock. Takes it off up to the colon.
std::optional<std::uint64_t> time_at(std::string_view& text) {
  const auto seconds = number_of(take_digits(text));
  if (!seconds) return std::nullopt;
  if (text.starts_with(":")) return seconds;
  if (!text.starts_with(".")) return std::nullopt;
  text.remove_prefix(1);
  const std::string_view digits = take_digits(text);
  const auto rest = number_of(digits);
  if (!rest || !text.starts_with(":") || (digits.size() != 6 && digits.size() != 9)) return std::nullopt;
  if (*seconds > ~std::uint64_t{0} / kSecond - 1) return std::nullopt;
  return *seconds * kSecond + (digits.size() == 6 ? *rest * 1000 : *rest);
}

// After "[001]": flags perhaps, then the time. Takes both off.
std::optional<std::uint64_t> time_after_cpu(std::string_view& text) {
  constexpr std::size_t kMostFlags = 8;
  skip_blanks(text);
  std::string_view without_flags = text;
  if (const auto time = time_at(without_flags)) {
    text = without_flags;
    return time;
  }
  const std::size_t flags = text.find(' ');
  if (flags > kMostFlags) return std::nullopt;
  text.remove_prefix(flags);
  skip_blanks(text);
  return time_at(text);
}

// "  zsh-12  [001] d..1.  3.000000004: sched_switch: ..."
struct EventLine {
  std::uint64_t ns = 0;
  std::string_view task, cpu, rest;  // "  zsh-12  ", "001", ": sched_switch: ..."
};

std::optional<EventLine> event_line(std::string_view line) {
  for (std::size_t at = line.find('['); at != std::string_view::npos; at = line.find('[', at + 1)) {
    EventLine found{.task = line.substr(0, at), .rest = line.substr(at + 1)};
    found.cpu = take_digits(found.rest);
    if (found.cpu.size() < 3 || !found.rest.starts_with("]")) continue;
    found.rest.remove_prefix(1);
    if (const auto time = time_after_cpu(found.rest)) return found.ns = *time, found;
  }
  return std::nullopt;
}

std::string_view without_blanks(std::string_view text) {
  skip_blanks(text);
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

std::uint32_t small_number(std::string_view digits) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(number_of(digits).value_or(0), ~std::uint32_t{0}));
}

// `lines`: from the event's own line on.
format::ForeignEvent event_of(const EventLine& line, std::string_view lines) {
  const std::string_view task = without_blanks(line.task);
  const std::size_t dash = task.rfind('-');
  format::ForeignEvent event{.ns = line.ns, .cpu = small_number(line.cpu), .comm = task.substr(0, dash)};
  if (dash != std::string_view::npos) event.tid = small_number(task.substr(dash + 1));
  if (event.comm == "<...>") event.comm = {};  // not known
  lines.remove_prefix(std::min(lines.size(), static_cast<std::size_t>(line.rest.data() - lines.data()) + 1));
  skip_blanks(lines);
  event.name = lines.substr(0, lines.find_first_of(":\n"));
  lines.remove_prefix(std::min(lines.size(), event.name.size() + 1));
  skip_blanks(lines);
  event.text = lines.substr(0, lines.find_last_not_of(" \n") + 1);
  return event;
}

// "local global [mono] boot" -> "mono"
std::string_view chosen_in(std::string_view list) {
  const std::size_t begin = list.find('['), end = list.find(']', begin);
  return begin == std::string_view::npos || end == std::string_view::npos ? ""
                                                                          : list.substr(begin + 1, end - begin - 1);
}

Error not_mergeable(const std::string& path, const std::string& text) {
  return Error{.code = Code::refused, .text = text, .where = path, .help = "trace-cmd record -C mono"};
}

Error unread_trace(const std::string& path) {
  return Error{.code = Code::refused,
               .text = "trace-cmd cannot read it",
               .where = path,
               .help = "trace-cmd report -i FILE says why"};
}

Result<std::string> options_of(const std::string& path) {
  auto output = ProgramOutput::start({"trace-cmd", "dump", "--options", "-i", path});
  if (!output) return output.error();
  std::string text;
  std::size_t lines = 0;
  while (const auto line = output->next_line())
    if (++lines <= kMostOptionLines && text.size() < kMostOptionBytes) text.append(*line).append("\n");
  return output->has_succeeded() ? Result<std::string>(text) : Result<std::string>(unread_trace(path));
}

}  // namespace

std::optional<std::uint64_t> time_of_line(std::string_view line) {
  const auto found = event_line(line);
  return found ? std::optional(found->ns) : std::nullopt;
}

std::vector<format::ForeignEvent> events_in(std::string_view lines) {
  std::vector<format::ForeignEvent> events;
  std::vector<std::string_view> dropped;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    if (const auto found = event_line(line)) {
      const format::ForeignEvent event = event_of(*found, lines);
      for (const std::string_view text : dropped)
        events.push_back({.ns = event.ns, .tid = event.tid, .cpu = event.cpu, .name = "dropped", .text = text});
      events.push_back(event);
      break;
    }
    dropped.push_back(line);
    lines.remove_prefix(std::min(line.size() + 1, lines.size()));
  }
  return events;
}

// The option, and in files of version 7 each buffer, names one; they have to be the same.
Result<trace::ClockKind> clock_of_options(const std::string& path, std::string_view options) {
  std::string_view found;
  bool is_next = false;
  while (!options.empty()) {
    const std::string_view line = options.substr(0, options.find('\n'));
    options.remove_prefix(std::min(line.size() + 1, options.size()));
    std::string_view named =
        std::exchange(is_next, line.find("[Option TRACECLOCK") != line.npos) ? chosen_in(line) : "";
    if (line.starts_with("\"") && line.ends_with("\" [clock]")) named = line.substr(1, line.find('"', 1) - 1);
    if (named.empty()) continue;
    if (!found.empty() && found != named) return not_mergeable(path, "its buffers have different clocks");
    found = named;
  }
  const auto clock = trace::clock_called(found);
  if (found.empty()) return not_mergeable(path, "it does not say which clock its times have");
  if (clock) return *clock;
  return not_mergeable(path,
                       "its times have the clock '" + format::escaped(found) + "', which a recording does not hold");
}

Result<ForeignTrace> ForeignTrace::open(const std::string& path) {
  const auto file = open_regular(path);
  if (!file && file.error().code == Code::refused)
    return Error{.code = Code::usage, .text = file.error().text + ": a trace.dat is a regular file", .where = path};
  if (!file) return file.error();
  const auto options = options_of(path);
  if (!options) return options.error();
  const auto clock = clock_of_options(path, *options);
  if (!clock) return clock.error();
  auto output = ProgramOutput::start({"trace-cmd", "report", "-t", "-N", "-i", path});
  if (!output) return output.error();
  ForeignTrace trace(path, *clock, output.take());
  trace.read_first();
  return trace;
}

// What stands before the first event is of the file; "CPU:0 [7 EVENTS DROPPED]" is of the event after it.
void ForeignTrace::read_first() {
  while (const auto line = output_.next_line()) {
    const auto time = time_of_line(*line);
    if (!time && line->starts_with("CPU:")) next_line_ += shown(*line);
    if (!time) continue;
    has_next_ = true, next_ns_ = *time, next_line_ += shown(*line);
    return;
  }
}

std::string ForeignTrace::take() {
  std::string lines = std::exchange(next_line_, {});
  has_next_ = false;
  std::size_t count = 0;
  while (const auto line = output_.next_line()) {
    const auto time = time_of_line(*line);
    const bool is_of_next = time || line->starts_with("CPU:");
    if (is_of_next) next_line_ += shown(*line);
    if (time) {
      has_next_ = true, next_ns_ = *time;
      break;
    }
    if (!is_of_next && ++count <= kMostLines) lines += shown(*line);
  }
  return lines;
}

Status ForeignTrace::finish() { return output_.has_succeeded() ? ok() : Status(unread_trace(path_)); }

}  // namespace uprobe::recording
