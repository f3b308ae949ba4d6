// SPDX-License-Identifier: MIT
#include "cli/replay.h"

#include "cli/output_options.h"
#include "cli/text.h"

namespace uprobe::cli {
namespace {

constexpr int kExitDamaged = 1;

recording::ReplayOptions choice_of(const Options& options) {
  recording::ReplayOptions choice = options.replay;
  choice.format = options.format;
  choice.clock = options.clock.value_or(choice.clock);
  choice.takes_merged_clock = !options.clock;
  const bool is_text = takes_text(options);  // other formats keep their header, as while a program is traced
  choice.without_header = options.no_header || (is_text && (options.quiet || options.short_lines));
  choice.short_lines = options.short_lines;
  choice.raw_strings = options.raw_strings;
  choice.string_limit = options.string_limit;
  choice.max_events = options.max_events;
  choice.counters = options.counters;
  choice.min_latency = static_cast<std::uint64_t>(options.min_latency.count());
  return choice;
}

void tell_losses(const Call& call, const std::vector<format::Total>& totals) {
  for (const format::Total& total : totals) {
    if (total.lost != 0) call.diagnostics.line(total.name + ": " + counted(total.lost, "hit", "hits") + " lost");
    if (total.missed != 0)
      call.diagnostics.line(total.name + ": " + counted(total.missed, "return", "returns") + " missed");
  }
}

int exit_code_of(const Error& error) { return error.code == Code::refused ? kExitDamaged : kExitFailure; }

}  // namespace

// The recording first: an output must not be truncated for a file that is none, nor be the recording itself.
Outcome replay(const Call& call) {
  const auto recording = recording::open_recording(call.options.replayed);
  if (!recording) return fail(call, recording.error(), exit_code_of(recording.error()));
  const std::string place = call.options.output.empty() ? "-" : call.options.output;
  Result<TraceSink> sink = TraceSink::open(place, call.streams, target_of(call.options), &recording->file.about);
  if (!sink) return fail(call, sink.error());
  if (const Status fits = check_terminal(call.options, sink->is_terminal()); !fits) return fail(call, fits.error());
  recording::ReplayOptions choice = choice_of(call.options);
  choice.files = sink->files();
  const auto totals = recording::replay(*recording, choice, [&](std::string_view text) { return sink->write(text); });
  sink->finish();
  if (const auto failure = sink->take_failure()) return fail(call, *failure);
  if (!totals) return fail(call, totals.error(), exit_code_of(totals.error()));
  if (!call.options.quiet) tell_losses(call, *totals);
  return {};
}

}  // namespace uprobe::cli
