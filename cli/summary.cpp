// SPDX-License-Identifier: MIT
// The summary's lines. See summary.h.
#include "cli/summary.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "cli/diagnostics.h"
#include "cli/text.h"
#include "engine/shared/layout.h"

namespace uprobe::cli {

namespace {

constexpr std::size_t kEventWidth = 44;  // uprobe_profile's column
constexpr std::size_t kLines = 20;       // one for each probe where there are no more than this

struct Cause {
  std::uint64_t count;
  std::string name;
  std::string advice;  // ": use ..." or empty
};

std::vector<Cause> causes(const ProbeSummary& lost) {
  std::vector<Cause> all = {
      {lost.lost_full, "ring full", ": use -b to enlarge"},
      {lost.lost_too_big, "larger than " + grouped(shared::kMaxPayload) + " bytes", ""},
      {lost.lost_busy, "every ring busy", ""},
      {lost.lost_to_reader_lag, "this tool did not keep up with the others", ""},
  };
  std::erase_if(all, [](const Cause& cause) { return cause.count == 0; });
  return all;
}

// "12 (ring full)", "15 (12 ring full; 3 every ring busy)"
std::string lost_text(const ProbeSummary& lost, bool with_advice) {
  const std::vector<Cause> all = causes(lost);
  std::string text;
  for (const Cause& cause : all) {
    text += text.empty() ? "" : "; ";
    if (all.size() > 1) text += grouped(cause.count) + " ";
    text += cause.name + (with_advice ? cause.advice : "");
  }
  return grouped(lost_count(lost)) + " (" + text + ")";
}

// ", 3 overridden, 1 delayed"
std::string changes_text(const ProbeSummary& probe) {
  const std::pair<std::uint64_t, const char*> kinds[] = {{probe.overridden, " overridden"},
                                                         {probe.changed, " changed"},
                                                         {probe.delayed, " delayed"},
                                                         {probe.signalled, " signalled"}};
  std::string text;
  for (const auto& [count, word] : kinds)
    if (count != 0) text += ", " + grouped(count) + word;
  if (probe.not_changed != 0)
    text += ", " + counted(probe.not_changed, "change", "changes") +
            " not made (another user's process, a seccomp filter, a shadow stack, values that cannot be read, or a "
            "place that "
            "the agent needs)";
  return text;
}

std::string probe_line(const ProbeSummary& probe, bool verbose) {
  std::string text = probe.name + " " + probe.place + ": " + counted(probe.hits, "hit", "hits");
  if (probe.hits == 0 && probe.missed == 0) text += " (" + (probe.hint.empty() ? "never reached" : probe.hint) + ")";
  if (probe.filtered != 0) text += ", " + grouped(probe.filtered) + " filtered";
  if (probe.unsampled != 0) text += ", " + grouped(probe.hits - probe.unsampled) + " of them sampled";
  if (probe.too_short != 0) text += ", " + grouped(probe.too_short) + " too short";
  if (probe.over_rate != 0) text += ", " + grouped(probe.over_rate) + " over the rate";
  if (probe.disabled != 0 && !probe.is_counted) text += ", " + grouped(probe.disabled) + " while off";
  text += changes_text(probe);
  if (lost_count(probe) != 0) text += ", lost " + lost_text(probe, false);
  if (probe.missed != 0) text += ", " + counted(probe.missed, "return", "returns") + " not followed";
  if (probe.unavailable != 0)
    text += ", " + counted(probe.unavailable, "trigger", "triggers") +
            " could not read comm (seccomp filter) or common_pid (PID namespace)";
  if (verbose && !probe.against.empty()) text += "; int3: " + probe.against;
  return text;
}

// The busiest first, then how many others were reached, and how many were not.
std::string busiest_lines(const std::vector<ProbeSummary>& probes, bool color) {
  std::vector<const ProbeSummary*> reached;
  for (const ProbeSummary& probe : probes)
    if (probe.hits + probe.missed != 0) reached.push_back(&probe);
  std::stable_sort(reached.begin(), reached.end(),
                   [](const ProbeSummary* a, const ProbeSummary* b) { return a->hits > b->hits; });
  std::string text;
  std::uint64_t others = 0;
  for (std::size_t i = 0; i < reached.size(); ++i) {
    if (i < kLines) text += render_line(probe_line(*reached[i], false), color);
    if (i >= kLines) others += reached[i]->hits;
  }
  if (reached.size() > kLines)
    text += render_line(
        counted(reached.size() - kLines, "other probe", "other probes") + ": " + counted(others, "hit", "hits"), color);
  if (reached.size() < probes.size())
    text += render_line(counted(probes.size() - reached.size(), "probe", "probes") + " never reached", color);
  return text;
}

std::string probe_lines(const std::vector<ProbeSummary>& probes, bool color, bool verbose) {
  if (probes.size() > kLines && !verbose) return busiest_lines(probes, color);
  std::string text;
  for (const ProbeSummary& probe : probes) text += render_line(probe_line(probe, verbose), color);
  return text;
}

ProbeSummary total_of(const std::vector<ProbeSummary>& probes) {
  ProbeSummary total;
  for (const ProbeSummary& probe : probes) {
    total.hits += probe.hits;
    total.lost_full += probe.lost_full;
    total.lost_too_big += probe.lost_too_big;
    total.lost_busy += probe.lost_busy;
    total.lost_to_reader_lag += probe.lost_to_reader_lag;
  }
  return total;
}

}  // namespace

std::uint64_t lost_count(const ProbeSummary& probe) {
  return probe.lost_full + probe.lost_too_big + probe.lost_busy + probe.lost_to_reader_lag;
}

std::string render_summary(const Summary& summary, bool color, bool verbose) {
  std::string text = probe_lines(summary.probes, color, verbose);
  const ProbeSummary total = total_of(summary.probes);
  if (summary.probes.size() > 1) text += render_line("total: " + counted(total.hits, "hit", "hits"), color);
  if (summary.tier != plan::Tier::breakpoint &&
      summary.jumps + summary.breakpoints + summary.hardware > (verbose ? 0U : 1U))
    text += render_line("tiers: " + grouped(summary.jumps) + " jump, " + grouped(summary.breakpoints) + " int3" +
                            (summary.hardware != 0 ? ", " + grouped(summary.hardware) + " hardware" : ""),
                        color);
  if (lost_count(total) != 0) text += render_line("lost: " + lost_text(total, true), color);
  if (summary.mail_timeouts != 0)
    text += render_line("unprobed: " + counted(summary.mail_timeouts, "library was", "libraries were") +
                            " mapped while uprobe-run was too busy to answer in time",
                        color);
  for (const std::string& note : summary.notes) text += render_line(note, color);
  for (std::size_t i = 0; verbose && i < summary.details.size(); ++i) text += render_line(summary.details[i], color);
  return text;
}

bool has_losses(const Summary& summary) {
  if (summary.mail_timeouts != 0) return true;
  for (const ProbeSummary& probe : summary.probes)
    if (lost_count(probe) + probe.missed + probe.unavailable + probe.not_changed != 0) return true;
  return false;
}

std::string as_comments(std::string_view lines) {
  std::string text;
  for (bool begins = true; const char c : lines) {
    if (begins) text += "# ";
    text += c;
    begins = c == '\n';
  }
  return text;
}

// The widths are the kernel's. A path may contain colons, the offset after it does not.
std::string render_profile(const Summary& summary) {
  std::string text;
  for (const ProbeSummary& probe : summary.probes) {
    const std::string event = escape(probe.name.substr(probe.name.find('/') + 1));
    char numbers[48];
    std::snprintf(numbers, sizeof numbers, " %15llu %15llu\n", static_cast<unsigned long long>(probe.hits),
                  static_cast<unsigned long long>(lost_count(probe)));
    text += "  " + escape(probe.place.substr(0, probe.place.rfind(':'))) + " " + event;
    text.append(event.size() < kEventWidth ? kEventWidth - event.size() : 0, ' ').append(numbers);
  }
  return text;
}

}  // namespace uprobe::cli
