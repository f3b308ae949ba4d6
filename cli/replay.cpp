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
  choice.without_header = options.no_header || options.quiet || options.short_lines;
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

}  // namespace

Outcome replay(const Call& call) {
  Result<TraceSink> sink = TraceSink::open(call.options.output.empty() ? "-" : call.options.output, call.streams);
  if (!sink) return fail(call, sink.error());
  if (const Status fits = check_terminal(call.options, sink->is_terminal()); !fits) return fail(call, fits.error());
  const auto totals =
      recording::replay(choice_of(call.options), [&](std::string_view text) { return sink->write(text); });
  sink->finish();
  if (const auto failure = sink->take_failure()) return fail(call, *failure);
  if (!totals) return fail(call, totals.error(), totals.error().code == Code::refused ? kExitDamaged : kExitFailure);
  if (!call.options.quiet) tell_losses(call, *totals);
  return {};
}

}  // namespace uprobe::cli
