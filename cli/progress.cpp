// SPDX-License-Identifier: MIT
// See progress.h.
#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "cli/output_options.h"
#include "cli/text.h"

namespace uprobe::cli {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(100);
constexpr auto kBetweenLines = std::chrono::seconds(1);
constexpr std::string_view kClear = "\r\x1b[K";

std::string megabytes_text(std::uint64_t bytes) {
  constexpr double kStep = 1000;
  auto size = static_cast<double>(bytes);
  const char* unit = "kB";
  size /= kStep;
  for (const char* larger : {"MB", "GB"})
    if (size >= kStep) size /= kStep, unit = larger;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %s", size, unit);
  return text.data();
}

// A program that the tool starts may write to the same terminal, or be a shell or an editor there.
bool may_draw(const Call& call, const TraceSink& sink) {
  const Streams& streams = call.streams;
  const bool is_file = !call.options.output.empty() || records(call.options);
  if (call.options.quiet || call.options.top || !is_file || sink.is_terminal() || ::isatty(streams.err) != 1)
    return false;
  return attaches(call.options) || (::isatty(streams.in) != 1 && ::isatty(streams.out) != 1);
}

}  // namespace

std::string render_pace(const Pace& pace) {
  std::string text = counted(pace.hits, "hit", "hits") + ", " +
                     grouped(static_cast<std::uint64_t>(pace.hits_a_second)) + " a second, " +
                     (pace.lost == 0 ? "none" : grouped(pace.lost)) + " lost";
  if (pace.bytes != 0) text += ", " + megabytes_text(pace.bytes) + " written";
  return text;
}

std::string render_first_loss(const std::vector<EventProgress>& events) {
  const auto first = std::ranges::find_if(events, [](const EventProgress& event) { return event.lost != 0; });
  if (first == events.end()) return {};
  return "the first hits are lost (" + grouped(first->lost) + " of " + grouped(first->hits) + " by now, of " +
         first->name + "): the summary will name the causes, -b gives the rings more room";
}

ProgressView::ProgressView(const Call& call, const TraceSink& sink)
    : call_(call), sink_(sink), draws_(may_draw(call, sink)), has_told_(call.options.quiet) {}

ProgressView::~ProgressView() { wipe(); }

void ProgressView::look() {
  const Clock::time_point now = Clock::now();
  if (now < next_look_ || (has_told_ && !draws_)) return;
  next_look_ = now + kBetweenLooks;
  const auto events = call_.engine.progress();
  if (!events) return;
  tell_first_loss(*events);
  if (draws_ && now - drawn_ >= kBetweenLines) draw(*events, now);
}

void ProgressView::tell_first_loss(const std::vector<EventProgress>& events) {
  if (has_told_) return;
  const std::string loss = render_first_loss(events);
  if (loss.empty()) return;
  has_told_ = true;
  wipe();
  call_.diagnostics.line(loss);
}

void ProgressView::draw(const std::vector<EventProgress>& events, Clock::time_point now) {
  Pace pace{.bytes = sink_.written()};
  for (const EventProgress& event : events) pace.hits += event.hits, pace.lost += event.lost;
  pace.hits_a_second =
      static_cast<double>(pace.hits - std::min(pace.hits, hits_)) / std::chrono::duration<double>(now - drawn_).count();
  call_.diagnostics.print(std::string(kClear) + render_pace(pace));
  hits_ = pace.hits, drawn_ = now, is_drawn_ = true;
}

void ProgressView::wipe() {
  if (is_drawn_) call_.diagnostics.print(std::string(kClear));
  is_drawn_ = false;
}

}  // namespace uprobe::cli
