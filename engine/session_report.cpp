// What a session tells of itself: the plan before it runs, the summary behind it.
#include <algorithm>
#include <set>

#include "engine/base/text.h"
#include "engine/session_state.h"
#include "engine/spec/listing.h"

namespace uprobe {

namespace {

std::string reason_at(const plan::Site& site, const plan::FileJumps& jumps) {
  const plan::Window* window = jumps.window_at(site.address);
  return window == nullptr ? "the agent itself needs a breakpoint there" : window->text();
}

// Of the first place that cannot have one.
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
  std::set<std::string> unread;
  control::OwnPoints own(planned, !agent, options.returns == plan::ReturnMode::stub, unread);
  control::JumpPlanner jumps(flows, own);
  std::vector<std::string> reasons;
  for (const Probe& probe : probes) {
    const auto file = std::find_if(planned.files().begin(), planned.files().end(),
                                   [&](const control::FilePoints& f) { return f.file == probe.site.file; });
    if (probe.site.is_ifunc || file == planned.files().end()) {
      reasons.emplace_back();  // what the program chooses decides
      continue;
    }
    reasons.push_back(reason_against_jumps(probe, jumps.of(*file)));
  }
  return reasons;
}

// Before there is a process: every probe by a jump, or none at all.
Status Session::State::check_tiers() {
  if (options.tier != plan::Tier::jump) return ok();
  const std::vector<std::string> reasons = reasons_against_jumps();
  for (std::size_t i = 0; i < probes.size(); ++i)
    if (!reasons[i].empty())
      return Error{.code = Code::refused,
                   .text = "needs a breakpoint: " + reasons[i],
                   .where = probes[i].spec.definition,
                   .help = "--tier=auto takes one there"};
  return ok();
}

std::vector<PlanReport> Session::report() const {
  const bool may_jump = state_->options.tier != plan::Tier::breakpoint;
  const auto reasons = may_jump ? state_->reasons_against_jumps() : std::vector<std::string>();
  std::vector<PlanReport> reports;
  for (const Probe& probe : state_->probes) {
    PlanReport report;
    report.definition = spec::listing(probe.spec, probe.site.offset);
    report.path = probe.spec.place.path;
    report.offset = probe.site.offset;
    report.address = probe.site.address;
    report.symbol = probe.site.symbol;
    report.bytes = probe.site.insn;
    report.why = may_jump ? reasons[reports.size()] : "as --tier wants it";
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
  if (report.armed_events.count(static_cast<std::uint16_t>(event)) != 0)
    return probe.returns ? "never returned" : "never reached";
  if (probe.site.is_ifunc)
    return "the program never chose an implementation, or " + probe.site.file->path() + " was not mapped";
  return probe.site.file->path() + " was not mapped by this program";
}

}  // namespace

Summary Session::summary() const {
  const State& s = *state_;
  Summary summary;
  summary.notes = s.notes;
  if (!s.mail) return summary;
  auto& area = const_cast<trace::Area&>(*s.area);
  const trace::ReaderCounts& counts = s.reader->counts();
  for (std::size_t i = 0; i < s.probes.size(); ++i) {
    const Probe& probe = s.probes[i];
    if (probe.was_refused) continue;
    const shared::Event& event = area.event(static_cast<std::uint32_t>(i));
    ProbeSummary line;
    line.name = probe.spec.group + "/" + probe.spec.event;
    line.place = probe.spec.place.path + ":" + hex(probe.site.offset);
    line.recorded = i < counts.recorded.size() ? counts.recorded[i] : 0;
    line.lost_full = event.lost_full, line.lost_too_big = event.lost_too_big, line.lost_busy = event.lost_busy;
    line.missed = event.missed;
    line.filtered = area.dropped(static_cast<std::uint32_t>(i)) + (i < counts.dropped.size() ? counts.dropped[i] : 0);
    line.muted = event.muted;
    line.hits = line.recorded + line.filtered + line.muted + line.lost_full + line.lost_too_big + line.lost_busy;
    if (line.hits == 0) line.hint = hint_for(probe, i, s.armer->report());
    const auto against = s.armer->report().against.find(static_cast<std::uint16_t>(i));
    if (against != s.armer->report().against.end()) line.against = against->second;
    summary.probes.push_back(std::move(line));
  }
  summary.tier = s.options.tier;
  summary.breakpoints = s.armer->report().breakpoints.size();
  for (const std::uint16_t event : s.armer->report().jumps)
    summary.jumps += s.armer->report().breakpoints.count(event) == 0 ? 1 : 0;
  summary.mail_timeouts = area.header().mail_timeouts;
  for (const std::string& text : s.mail->notes()) summary.notes.push_back(text);
  summary.notes.insert(summary.notes.end(), s.armer->report().notes.begin(), s.armer->report().notes.end());
  const auto note = [&](std::uint64_t n, const char* what) {
    if (n != 0) summary.notes.push_back(std::to_string(n) + " " + what);
  };
  note(area.header().filtered_execs,
       "times execve was called under a seccomp filter of the program's own: what it started ran untraced");
  note(area.header().traced_execs, "programs were started for a debugger among the traced programs: they ran untraced");
  note(area.header().unread_signals,
       "of SIGTRAP, SIGSEGV and SIGBUS were sent to a program that has a signalfd for them: they cannot be read there");
  note(counts.damaged, "records were damaged and left out");
  note(counts.missing, "records are missing");
  note(counts.bad_stamps, "records had impossible time stamps");
  note(counts.order_breaks, "records came out of order");
  return summary;
}

}  // namespace uprobe
