// SPDX-License-Identifier: MIT
#include "engine/session/report.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "engine/base/text.h"
#include "engine/output/histogram.h"
#include "engine/process/mapped_file.h"
#include "engine/spec/listing.h"
#include "engine/summary/call_sums.h"
#include "engine/summary/call_times.h"
#include "engine/trace/histogram_copy.h"

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

std::string hint_for(const Probe& probe, std::size_t event, const control::ArmReport& report) {
  if (!probe.live) return "removed";
  const auto refused = report.refusals.find(static_cast<std::uint16_t>(event));
  if (refused != report.refusals.end()) return refused->second;
  if (probe.spec.place.is_generated && !report.armed_events.has(event))
    return "no function of this name in the map of generated code, /tmp/perf-PID.map";
  if (report.armed_events.has(event)) return probe.returns ? "never returned" : "never reached";
  if (probe.site.is_ifunc)
    return "the program never chose an implementation, or " + probe.site.file->path() + " was not mapped";
  return probe.site.file->path() + " was not mapped by this program";
}

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

struct TextOf {
  int pid;
  std::vector<control::MappedText> text;
};

std::vector<TextOf> text_of(const std::vector<int>& pids) {
  std::vector<TextOf> found;
  found.reserve(pids.size());
  for (const int pid : pids) found.push_back({pid, control::mapped_text(pid)});
  return found;
}

std::vector<PlaceInProcess> places_in(const std::vector<TextOf>& processes, const plan::Site& site) {
  std::vector<PlaceInProcess> places;
  for (const auto& [pid, text] : processes) {
    const auto address = control::address_in(text, site.file->identity(), site.offset);
    places.push_back({pid, address ? std::optional(address->value) : std::nullopt});
  }
  return places;
}

}  // namespace

std::vector<std::string> Report::reasons_against_jumps() {
  Notes unread;
  const auto& files = table_.planned().files();
  control::InternalPoints own(table_.planned(), targets_.wishes(), unread);
  control::JumpPlanner jumps(table_.flows(), own);
  std::vector<std::string> reasons;
  for (const Probe& probe : table_.probes()) {
    const auto file = std::find_if(files.begin(), files.end(),
                                   [&](const control::FilePoints& f) { return f.file == probe.site.file; });
    if (probe.spec.place.is_generated || probe.changes_program) {
      reasons.emplace_back(probe.changes_program ? control::kChangesProgram : "it is in generated code");
      continue;
    }
    if (probe.site.is_ifunc || file == files.end()) {
      reasons.emplace_back();  // known only when the program has chosen an implementation
      continue;
    }
    reasons.push_back(reason_against_jumps(probe, jumps.of(*file)));
  }
  return reasons;
}

Status Report::check_tiers() {
  if (options_.tier != plan::Tier::jump) return ok();
  const std::vector<std::string> reasons = reasons_against_jumps();
  const auto refused = std::find_if(reasons.begin(), reasons.end(), [](const auto& reason) { return !reason.empty(); });
  if (refused == reasons.end()) return ok();
  const Probe& probe = table_.probes()[static_cast<std::size_t>(refused - reasons.begin())];
  return Error{.code = Code::refused,
               .text = "needs a breakpoint: " + *refused,
               .where = probe.spec.definition,
               .help = "--tier=auto uses a breakpoint there",
               .definition = probe.definition};
}

PlanReport Report::plan_of(const Probe& probe) const {
  PlanReport report;
  report.definition = spec::listing(probe.spec, probe.site.offset);
  report.path = probe.spec.place.path;
  report.offset = probe.site.offset;
  report.address = probe.site.address;
  report.symbol = probe.site.symbol;
  report.bytes = probe.site.insn;
  report.changes_program = probe.changes_program;
  if (probe.returns) report.returns = returns_text(probe);
  return report;
}

std::vector<PlanReport> Report::plan(const std::vector<int>& pids) {
  const bool may_jump = options_.tier != plan::Tier::breakpoint;
  const auto reasons = may_jump ? reasons_against_jumps() : std::vector<std::string>();
  std::vector<PlanReport> reports;
  const std::vector<TextOf> processes = text_of(pids);
  for (const Probe& probe : table_.probes()) {
    PlanReport report = plan_of(probe);
    if (!probe.site.is_ifunc && !probe.spec.place.is_generated) report.processes = places_in(processes, probe.site);
    report.why = may_jump ? reasons[reports.size()] : "--tier asks for a breakpoint";
    report.tier = may_jump && report.why.empty() ? "jump" : "int3";
    if (probe.spec.place.is_generated) report.tier = "hardware", report.why = "it is in generated code";
    if (probe.site.is_ifunc && !probe.changes_program)
      report.why = "an IFUNC: the implementation that the program chooses is probed";
    reports.push_back(std::move(report));
  }
  return reports;
}

ProbeSummary Report::line_of(std::size_t event, const EventCounts& counts, std::uint64_t lag) const {
  const Probe& probe = table_.probes()[event];
  const control::ArmReport& report = targets_.report();
  ProbeSummary line;
  line.name = probe.spec.group + "/" + probe.spec.event;
  line.place = probe.spec.place.path + ":" + hex(probe.site.offset);
  if (probe.spec.place.is_generated) line.place = spec::place_listing(probe.spec.place, std::nullopt);
  line.lost_full = counts.lost_full, line.lost_too_big = counts.lost_too_big, line.lost_busy = counts.lost_busy;
  line.lost_to_reader_lag = std::min(lag, counts.recorded);
  line.recorded = counts.recorded - line.lost_to_reader_lag;
  line.missed = counts.missed, line.unavailable = counts.unavailable, line.filtered = counts.filtered,
  line.disabled = counts.disabled;
  line.overridden = counts.overridden, line.changed = counts.changed, line.delayed = counts.delayed;
  line.signalled = counts.signalled, line.not_changed = counts.not_changed;
  line.unsampled = counts.unsampled, line.over_rate = counts.over_rate, line.too_short = counts.too_short;
  line.is_counted = table_.is_just_counted(event);
  line.hits = hits_while_on(counts) + counts.disabled;
  if (line.hits == 0) line.hint = hint_for(probe, event, report);
  const auto against = report.against.find(static_cast<std::uint16_t>(event));
  if (against != report.against.end()) line.against = against->second;
  return line;
}

std::vector<std::size_t> Report::events_of(std::uint32_t owner, const Client* client) const {
  if (client != nullptr) return {client->events.begin(), client->events.end()};
  std::vector<std::size_t> events;
  for (std::size_t i = 0; i < table_.probes().size(); ++i)
    if (table_.probes()[i].owner == owner && !table_.probes()[i].was_refused) events.push_back(i);
  return events;
}

void Report::apply_limit(std::size_t event, ProbeSummary& line) const {
  if (!taken_) return;
  line.recorded = line.hits = event < taken_->size() ? (*taken_)[event] : 0;
}

void Report::add_tier(std::size_t event, Summary& summary) const {
  const control::ArmReport& report = targets_.report();
  const auto number = static_cast<std::uint16_t>(event);
  const bool is_breakpoint = report.breakpoints.has(number);
  summary.breakpoints += is_breakpoint ? 1 : 0;
  summary.hardware += report.hardware.has(number) ? 1 : 0;
  summary.jumps += !is_breakpoint && report.jumps.has(number) ? 1 : 0;
}

// Also what the mail service and the armer have noted.
void Report::add_removed(const std::vector<std::size_t>& events, Summary& summary) const {
  const control::ArmReport& report = targets_.report();
  Notes all = targets_.mail().notes();
  all.insert(report.notes);
  for (const control::BarredReport& barred : report.barred)
    if (const std::string text = removed_text(barred, events, summary.probes); !text.empty()) all.insert(text);
  for (std::string& text : all.lines()) summary.notes.push_back(std::move(text));
}

Summary Report::summary_of(std::uint32_t owner, const Client* client) {
  Summary summary = client != nullptr ? Summary{} : empty_summary();
  summary.tier = client != nullptr ? client->tier : options_.tier;
  if (client == nullptr) summary.details = messages_.details;
  const std::vector<std::size_t> events = events_of(owner, client);
  std::vector<EventCounts> counts;
  trace::ReaderCounts read;
  table_.alone([&] {
    for (const std::size_t event : events) counts.push_back(recording_.counts_of(event));
    read = recording_.read_counts();
  });
  targets_.mail().alone([&] {
    for (std::size_t i = 0; i < events.size(); ++i) {
      const std::uint64_t lag = client != nullptr ? client->records.lost(i) : recording_.own().lost(events[i]);
      summary.probes.push_back(line_of(events[i], counts[i], lag));
      if (client == nullptr) apply_limit(events[i], summary.probes.back());
      add_tier(events[i], summary);
    }
    summary.mail_timeouts = recording_.area().live_sums().mail_timeouts;
    add_removed(events, summary);
  });
  add_notes(recording_.area(), read, summary.notes);
  if (client == nullptr && unwritten_ != 0)
    summary.notes.push_back(std::to_string(unwritten_) + " hits or more were recorded and could not be written");
  return summary;
}

Summary Report::empty_summary() const {
  Summary summary;
  summary.notes = messages_.notes;
  return summary;
}

std::string Report::histograms(bool raw_strings) {
  if (!recording_.has_area() || recording_.area().histogram_count() == 0) return {};
  trace::TaskNames& tasks = recording_.names();
  const format::HistogramNames names{
      .task = [&](std::uint32_t tid) { return std::string(tasks.name(tasks.called(tid))); },
      .symbols = recording_.symbols(),
      .escape_control = !raw_strings,
  };
  const auto& all = table_.switches().histograms;
  const bool are_of_one =
      std::all_of(all.begin(), all.end(), [&](const auto& one) { return one.event == all[0].event; });
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool begins_event = i == 0 || all[i].event != all[i - 1].event;
    if (i != 0) text += begins_event ? "\n" : "\n\n";
    if (begins_event && !are_of_one) text += "==> " + table_.name_of_switch(all[i].event) + " <==\n";
    trace::HistogramCopy copy = trace::copy_histogram(recording_.area(), i);
    std::vector<shared::HistogramField> keys;
    for (const program::HistogramWord& key : all[i].plan.keys) keys.push_back(key.field);
    trace::show_tasks(copy, keys, [&](const shared::TaskNumber& task) { return tasks.number(task); });
    text += format::print_histogram(all[i].plan, copy, names);
  }
  return text;
}

// The probes of one event are one row.
CallSummary Report::calls_of(const std::vector<std::size_t>& probes) {
  EventCounts sum;
  summary::CallSums times;
  for (const std::size_t i : probes) {
    const EventCounts counts = recording_.counts_of(i);
    sum.entries += counts.entries, sum.missed += counts.missed;
    sum.self_unknown += counts.self_unknown, sum.untimed += counts.untimed;
    times.add(recording_.sums_since_reset(i));
  }
  return titled(probes, summary::summarize(times, {.began = sum.entries,
                                                   .unfollowed = sum.missed,
                                                   .untimed = sum.untimed,
                                                   .self_unknown = sum.self_unknown}));
}

CallSummary Report::titled(const std::vector<std::size_t>& probes, CallSummary calls) const {
  const Probe& probe = table_.probes()[probes.front()];
  calls.event = probe.spec.event, calls.place = probe.spec.place.path + ":" + hex(probe.site.offset);
  return calls;
}

// A row for each process that has called the function, or one without a process.
void Report::add_calls_by_process(const std::vector<std::size_t>& probes, std::vector<CallSummary>& all) {
  const std::size_t before = all.size();
  for (const auto& [process, banks] : summary::banks_by_process(recording_.area(), recording_.summed_processes())) {
    summary::CallSums times;
    for (const std::size_t i : probes)
      for (const summary::Bank& bank : banks)
        summary::add_call_sums(recording_.area(), static_cast<std::uint32_t>(i), bank, times);
    CallSummary calls = summary::summarize(times, {.began = times.began,
                                                   .unfollowed = times.unfollowed,
                                                   .untimed = times.untimed,
                                                   .self_unknown = times.self_unknown});
    if (calls.calls == 0 && calls.returns == 0) continue;
    calls.process = {process.id, process.name};
    all.push_back(titled(probes, std::move(calls)));
  }
  if (all.size() == before) all.push_back(titled(probes, {}));
}

std::uint32_t Report::snapshots() const { return recording_.has_area() ? recording_.area().live_sums().snapshots : 0; }

std::vector<CallSummary> Report::calls(bool by_process) {
  std::vector<CallSummary> all;
  if (!recording_.has_area()) return all;
  table_.alone([&] {
    const auto& switches = table_.switches().switches;
    std::map<std::uint32_t, std::vector<std::size_t>> rows;
    for (std::size_t i = 0; i < switches.size(); ++i)
      if (table_.probes()[i].spec.sums_calls) rows[switches[i].number].push_back(i);
    all.reserve(rows.size());
    for (const auto& [number, probes] : rows)
      by_process ? add_calls_by_process(probes, all) : all.push_back(calls_of(probes));
  });
  return all;
}

}  // namespace uprobe
