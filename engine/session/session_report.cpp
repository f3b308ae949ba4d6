// SPDX-License-Identifier: MIT
// The session's reports: the plan before it runs, the summary after it.
#include <algorithm>
#include <set>

#include "engine/base/text.h"
#include "engine/output/histogram.h"
#include "engine/session/session_state.h"
#include "engine/spec/listing.h"

namespace uprobe {

namespace {

std::string reason_at(const plan::Site& site, const plan::FileJumps& jumps) {
  const plan::Window* window = jumps.window_at(site.address);
  return window == nullptr ? "the agent itself needs a breakpoint there" : window->text();
}

// The reason at the first place that cannot have a jump.
std::string reason_against_jumps(const Probe& probe, const plan::FileJumps& jumps) {
  if (!probe.returns || probe.returns->mode == plan::ReturnMode::stub) return reason_at(probe.site, jumps);
  if (const std::string reason = reason_at(probe.site, jumps); spec::wants_entry(probe.spec) && !reason.empty())
    return hex(probe.site.offset) + ": " + reason;
  for (const plan::Site& exit : probe.returns->sites)
    if (const std::string reason = reason_at(exit, jumps); !reason.empty()) return hex(exit.offset) + ": " + reason;
  return {};
}

// "a stub", "3 exits: 0x1234, 0x1250, jump at 0x1260"
std::string returns_text(const Probe& probe) {
  if (probe.returns->mode == plan::ReturnMode::stub) return "a stub";
  const auto& exits = probe.returns->exits;
  std::string text = std::to_string(exits.size()) + (exits.size() == 1 ? " exit:" : " exits:");
  for (std::size_t i = 0; i < exits.size(); ++i)
    text +=
        (i == 0 ? " " : ", ") + std::string(exits[i].is_jump ? "jump at " : "") + hex(probe.returns->sites[i].offset);
  return text;
}

}  // namespace

std::vector<std::string> Session::State::reasons_against_jumps() {
  Notes unread;
  const control::InternalPoints::Wishes wishes{
      .ends_too = asks_at_end(), .is_preloaded = !agent, .insists_on_stubs = options.returns == plan::ReturnMode::stub};
  control::InternalPoints own(table.planned(), wishes, unread);
  control::JumpPlanner jumps(table.flows(), own);
  std::vector<std::string> reasons;
  for (const Probe& probe : table.probes()) {
    const auto file = std::find_if(table.planned().files().begin(), table.planned().files().end(),
                                   [&](const control::FilePoints& f) { return f.file == probe.site.file; });
    if (probe.site.is_ifunc || file == table.planned().files().end()) {
      reasons.emplace_back();  // known only when the program has chosen an implementation
      continue;
    }
    reasons.push_back(reason_against_jumps(probe, jumps.of(*file)));
  }
  return reasons;
}

// With --tier=jump every probe has to be a jump, or the session is refused before there is a process.
Status Session::State::check_tiers() {
  if (options.tier != plan::Tier::jump) return ok();
  const std::vector<std::string> reasons = reasons_against_jumps();
  for (std::size_t i = 0; i < table.probes().size(); ++i)
    if (!reasons[i].empty())
      return Error{.code = Code::refused,
                   .text = "needs a breakpoint: " + reasons[i],
                   .where = table.probes()[i].spec.definition,
                   .help = "--tier=auto uses a breakpoint there",
                   .definition = table.probes()[i].definition};
  return ok();
}

std::vector<PlanReport> Session::report() const {
  const bool may_jump = state_->options.tier != plan::Tier::breakpoint;
  const auto reasons = may_jump ? state_->reasons_against_jumps() : std::vector<std::string>();
  std::vector<PlanReport> reports;
  for (const Probe& probe : state_->table.probes()) {
    PlanReport report;
    report.definition = spec::listing(probe.spec, probe.site.offset);
    report.path = probe.spec.place.path;
    report.offset = probe.site.offset;
    report.address = probe.site.address;
    report.symbol = probe.site.symbol;
    report.bytes = probe.site.insn;
    report.why = may_jump ? reasons[reports.size()] : "--tier asks for a breakpoint";
    report.tier = may_jump && report.why.empty() ? "jump" : "int3";
    if (probe.returns) report.returns = returns_text(probe);
    if (probe.site.is_ifunc) report.why = "an IFUNC: the implementation that the program chooses is probed";
    reports.push_back(std::move(report));
  }
  return reports;
}

namespace {

std::string hint_for(const Probe& probe, std::size_t event, const control::ArmReport& report) {
  if (!probe.live) return "removed";
  const auto refused = report.refusals.find(static_cast<std::uint16_t>(event));
  if (refused != report.refusals.end()) return refused->second;
  if (report.armed_events.has(event)) return probe.returns ? "never returned" : "never reached";
  if (probe.site.is_ifunc)
    return "the program never chose an implementation, or " + probe.site.file->path() + " was not mapped";
  return probe.site.file->path() + " was not mapped by this program";
}

}  // namespace

EventCounts Session::State::all_counts_of(std::size_t event) const {
  const auto number = static_cast<std::uint32_t>(event);
  const shared::EventCounts seen = area->counts(number);
  const trace::ReaderCounts& read = reader->counts();
  const bool is_known = event < read.recorded.size();
  return {
      .recorded = is_known ? read.recorded[event] : 0,
      .filtered = table.probes()[event].just_unseen ? 0 : area->dropped(number) + (is_known ? read.dropped[event] : 0),
      .disabled = seen.disabled,
      .lost_full = seen.lost_full,
      .lost_too_big = seen.lost_too_big,
      .lost_busy = seen.lost_busy,
      .missed = seen.missed,
      .unavailable = seen.unavailable};
}

EventCounts Session::State::counts_of(std::size_t event) const {
  const EventCounts all = all_counts_of(event), &before = table.probes()[event].before;
  return {.recorded = all.recorded - before.recorded,
          .filtered = all.filtered - before.filtered,
          .disabled = all.disabled - before.disabled,
          .lost_full = all.lost_full - before.lost_full,
          .lost_too_big = all.lost_too_big - before.lost_too_big,
          .lost_busy = all.lost_busy - before.lost_busy,
          .missed = all.missed - before.missed,
          .unavailable = all.unavailable - before.unavailable};
}

ProbeSummary Session::State::line_of(std::size_t event, const EventCounts& counts, std::uint64_t behind) const {
  const Probe& probe = table.probes()[event];
  const control::ArmReport& report = armer->report();
  ProbeSummary line;
  line.name = probe.spec.group + "/" + probe.spec.event;
  line.place = probe.spec.place.path + ":" + hex(probe.site.offset);
  line.lost_full = counts.lost_full, line.lost_too_big = counts.lost_too_big, line.lost_busy = counts.lost_busy;
  line.lost_to_reader_lag = std::min(behind, counts.recorded);
  line.recorded = counts.recorded - line.lost_to_reader_lag;
  line.missed = counts.missed, line.unavailable = counts.unavailable, line.filtered = counts.filtered,
  line.disabled = counts.disabled;
  line.is_counted = table.is_just_counted(event);
  line.hits = counts.recorded + line.filtered + line.disabled + line.lost_full + line.lost_too_big + line.lost_busy;
  if (line.hits == 0) line.hint = hint_for(probe, event, report);
  const auto against = report.against.find(static_cast<std::uint16_t>(event));
  if (against != report.against.end()) line.against = against->second;
  return line;
}

namespace {

void add_notes(const trace::Area& area, const trace::ReaderCounts& counts, std::vector<std::string>& notes) {
  const auto note = [&](std::uint64_t n, const char* what) {
    if (n != 0) notes.push_back(std::to_string(n) + " " + what);
  };
  const shared::LiveHeader header = area.live_sums();
  note(header.filtered_execs,
       "times the program called execve under a seccomp filter of its own: the new programs ran untraced");
  note(header.traced_execs, "programs were started for a debugger among the traced programs: they ran untraced");
  note(header.unread_signals,
       "of SIGTRAP, SIGSEGV and SIGBUS were sent to a program with a signalfd for them, which cannot read them here");
  note(counts.damaged, "records were damaged and dropped");
  note(counts.missing, "records are missing");
  note(counts.bad_stamps, "records had impossible time stamps");
  note(counts.order_breaks, "records came out of order");
}

// "cat (pid 12): 2 probes removed (uprobes/a, uprobes/b): inside ..."; nothing if the summary has none of them.
std::string removed_text(const control::BarredReport& barred, const std::vector<std::size_t>& events,
                         const std::vector<ProbeSummary>& lines) {
  std::string names;
  std::size_t count = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (barred.events.count(static_cast<std::uint16_t>(events[i])) == 0) continue;
    names += (count++ == 0 ? "" : ", ") + lines[i].name;
  }
  if (count == 0) return {};
  return barred.program + " (pid " + std::to_string(barred.pid) + "): " + std::to_string(count) +
         (count == 1 ? " probe" : " probes") + " removed (" + names + "): " + barred.why;
}

}  // namespace

std::string Session::histograms(bool raw_strings) const {
  State& s = *state_;
  if (!s.area || s.area->histogram_count() == 0) return {};
  const format::HistogramNames names{
      .task = [&](std::uint32_t tid) { return std::string(s.names.name(s.names.called(tid))); },
      .symbols = s.symbols.get(),
      .escape_control = !raw_strings,
  };
  const auto& all = s.table.switches().histograms;
  const bool are_of_one = std::all_of(all.begin(), all.end(), [&](const auto& h) { return h.event == all[0].event; });
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool begins_event = i == 0 || all[i].event != all[i - 1].event;
    if (i != 0) text += begins_event ? "\n" : "\n\n";
    if (begins_event && !are_of_one) text += "==> " + s.table.name_of_switch(all[i].event) + " <==\n";
    trace::HistogramCopy copy = trace::copy_histogram(*s.area, i);
    std::vector<shared::HistogramField> keys;
    for (const program::HistogramWord& key : all[i].plan.keys) keys.push_back(key.field);
    trace::show_tasks(copy, keys, [&](const shared::TaskNumber& task) { return s.names.number(task); });
    text += format::print_histogram(all[i].plan, copy, names);
  }
  return text;
}

// For a client, its probes in the order of its definitions; for the session itself, also those that were removed. The list of
// probes must not change during the call.
Summary Session::State::summary_of(std::uint32_t owner, const Client* client) {
  Summary summary;
  summary.tier = client != nullptr ? client->tier : options.tier;
  if (client == nullptr) summary.notes = notes, summary.details = details;
  std::vector<std::size_t> events;
  if (client != nullptr) events.assign(client->events.begin(), client->events.end());
  for (std::size_t i = 0; client == nullptr && i < table.probes().size(); ++i)
    if (table.probes()[i].owner == owner && !table.probes()[i].was_refused) events.push_back(i);
  std::vector<EventCounts> counts;
  trace::ReaderCounts read;
  table.alone([&] {
    for (const std::size_t event : events) counts.push_back(counts_of(event));
    read = reader->counts();
  });
  mail->alone([&] {
    const control::ArmReport& report = armer->report();
    for (std::size_t i = 0; i < events.size(); ++i) {
      summary.probes.push_back(line_of(events[i], counts[i],
                                       client != nullptr ? client->records.lost(i)
                                       : own_queue       ? own_queue->lost(events[i])
                                                         : 0));
      const auto event = static_cast<std::uint16_t>(events[i]);
      const bool is_breakpoint = report.breakpoints.has(event);
      summary.breakpoints += is_breakpoint ? 1 : 0;
      summary.jumps += !is_breakpoint && report.jumps.has(event) ? 1 : 0;
    }
    summary.mail_timeouts = area->live_sums().mail_timeouts;
    Notes all = mail->notes();
    all.insert(report.notes);
    for (const control::BarredReport& barred : report.barred)
      if (const std::string text = removed_text(barred, events, summary.probes); !text.empty()) all.insert(text);
    for (std::string& text : all.lines()) summary.notes.push_back(std::move(text));
  });
  add_notes(*area, read, summary.notes);
  return summary;
}

Summary Session::summary() const {
  State& s = *state_;
  if (s.connection) return s.connection->summary();
  if (s.own_summary) return *s.own_summary;
  if (s.mail) return s.summary_of(0, nullptr);
  Summary summary;
  summary.notes = s.notes;
  return summary;
}

}  // namespace uprobe
