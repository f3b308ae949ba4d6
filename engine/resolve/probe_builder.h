// SPDX-License-Identifier: MIT
// Makes probes of the user's lines: parses, resolves, plans against the files, compiles. Needs no process.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/arm/probe_set.h"
#include "engine/plan/errno_place.h"
#include "engine/plan/returns.h"
#include "engine/program/filter.h"
#include "engine/program/layout.h"
#include "engine/resolve/event_enable_plan.h"
#include "engine/resolve/locations.h"
#include "engine/spec/definition_set.h"
#include "engine/types.h"

namespace uprobe {

// The counts of an event since the beginning of the session.
struct EventCounts {
  std::uint64_t recorded = 0, filtered = 0, disabled = 0, lost_full = 0, lost_too_big = 0, lost_busy = 0, missed = 0,
                unavailable = 0, entries = 0, self_unknown = 0, overridden = 0, changed = 0, delayed = 0, signalled = 0,
                not_changed = 0, unsampled = 0, over_rate = 0, too_short = 0, untimed = 0;
};

// What has come since `before`.
inline EventCounts operator-(const EventCounts& counts, const EventCounts& before) {
  using Words = std::array<std::uint64_t, sizeof(EventCounts) / sizeof(std::uint64_t)>;
  Words words = std::bit_cast<Words>(counts);
  const Words earlier = std::bit_cast<Words>(before);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] -= earlier[i];
  return std::bit_cast<EventCounts>(words);
}

// Hits that SessionOptions::thinning has left out.
inline std::uint64_t left_out(const EventCounts& counts) {
  return counts.unsampled + counts.over_rate + counts.too_short;
}

inline std::uint64_t lost_hits(const EventCounts& counts) {
  return counts.lost_full + counts.lost_too_big + counts.lost_busy;
}

// All but those while the event was off.
inline std::uint64_t hits_while_on(const EventCounts& counts) {
  return counts.recorded + counts.filtered + left_out(counts) + lost_hits(counts);
}

// One definition, resolved to a place and compiled to a program.
struct Probe {
  spec::ProbeSpec spec;
  plan::Site site;
  program::EventProgram program;
  std::vector<control::NamedObject> objects = {};  // in the order of the program's list
  std::optional<plan::ReturnPlan> returns;         // of a return probe
  spec::DefinitionSet::Id id = 0;
  int definition = -1;       // as in Error
  bool live = true;          // not deleted
  bool on = true;            // not switched off
  bool was_refused = false;  // by the program to which it was to be added: it was never armed
  std::uint32_t owner = 0;   // a client; 0: the session itself
  bool is_free = false;      // its owner has left, and the same probe of another owner may take its number
  bool changes_program = false;
  bool just_unseen = false;  // its filter drops hits of SessionOptions::unseen_thread, and no others
  EventCounts before = {};   // counts of earlier owners of its number
};

// Whether its records show names of code addresses.
bool shows_symbols(const Probe& probe);

// Whether the return address is at the stack pointer when the probe is hit: it is on a function's first instruction or, in the
// way the kernel's unwinder decides (the kernel's perf_callchain_user), on an instruction that usually is one.
bool is_function_entry(const Probe& probe);

// Adds the probe's points in its file, for event number `event`.
void add_points(const Probe& probe, std::uint16_t event, control::ProbeSet& to);

// Assigns numbers to the objects whose data the probes read. Call once for each probe.
Status number_objects(std::vector<Probe>& probes, control::ProbeSet& in);

class ProbeBuilder {
 public:
  // Both arguments must outlive it. Only its calls use the flows.
  ProbeBuilder(const SessionOptions& options, plan::FlowCache& flows);
  ProbeBuilder(const ProbeBuilder&) = delete;
  ProbeBuilder& operator=(const ProbeBuilder&) = delete;

  // Uses an open file again for probes in it.
  void know(std::shared_ptr<const elf::ElfFile> file) { files_.know(std::move(file)); }
  // Reads a line as uprobe_events takes it, deletions included. An error changes nothing. Error.definition counts the calls.
  Status read(const Definition& definition);
  // Makes the probes of all lines that were read since the last call. On an error these lines are dropped. For Error.definition
  // see read().
  Result<std::vector<Probe>> make_new();
  // For all existing probes, as make_new() returned them. A libc whose errno is set becomes an object of `in`.
  Result<SwitchPlan> plan_switches(const std::vector<Probe>& probes, control::ProbeSet& in);
  // Whether the definition comes from make_new() and was not deleted since.
  bool has(spec::DefinitionSet::Id id) const { return definitions_.by_id().count(id) != 0; }
  void forget(spec::DefinitionSet::Id id) { definitions_.erase(id); }

  // Notes for the user: functions that match a pattern and cannot be probed.
  const std::vector<std::string>& notes() const { return resolver_.notes(); }

 private:
  Result<Probe> make(const spec::ProbeSpec& definition, unsigned event_number);
  std::map<spec::DefinitionSet::Id, unsigned> event_numbers() const;
  Status can_probe(const spec::ProbeSpec& spec, const plan::Site& site);
  Status plan_returns(Probe& probe);
  Result<ErrnoSource> look_at_change(const Probe& probe, const program::TriggerSpec& trigger, control::ProbeSet& in);
  std::optional<plan::ErrnoPlace> errno_for(const Probe& probe);
  Status add(const Definition& definition);
  Result<std::vector<spec::ProbeSpec>> find(spec::ProbeSpec spec);
  Status check_thinning(const spec::ProbeSpec& spec) const;
  void mark_thinned(spec::ProbeSpec& spec) const;
  void leave_out_summed(std::vector<spec::ProbeSpec>& specs);

  const SessionOptions& options_;
  plan::FileCache files_;
  plan::FlowCache& flows_;
  plan::ReturnPlanner planner_;
  LocationResolver resolver_;
  std::string program_;                                     // the default object of the line that is read
  bool sums_calls_ = false;                                 // the line is of a summary
  std::set<std::pair<std::string, std::uint64_t>> summed_;  // path and offset of functions that are in the summary
  spec::DefinitionSet definitions_;
  spec::DefinitionSet::Id made_ = 0;  // make_new() has made all below this
  int reads_ = 0;
  std::map<spec::DefinitionSet::Id, int> read_by_;  // the read() call that defined it
  const unsigned cpus_ = program::possible_cpus();
};

}  // namespace uprobe
