// SPDX-License-Identifier: MIT
// From the lines of a user to probes: parsed, resolved, planned against the files, compiled. No process is needed for it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/arm/probe_set.h"
#include "engine/plan/returns.h"
#include "engine/program/filter.h"
#include "engine/program/layout.h"
#include "engine/resolve/event_enable_plan.h"
#include "engine/resolve/locations.h"
#include "engine/spec/definition_set.h"
#include "engine/types.h"

namespace uprobe {

// What is counted of an event, since the beginning of the session.
struct EventCounts {
  std::uint64_t recorded = 0, filtered = 0, disabled = 0, lost_full = 0, lost_too_big = 0, lost_busy = 0, missed = 0,
                unavailable = 0;
};

// One definition, all the way to a place and a program.
struct Probe {
  spec::ProbeSpec spec;
  plan::Site site;
  program::EventProgram program;
  std::vector<control::NamedObject> objects = {};  // of the program's list
  std::optional<plan::ReturnPlan> returns;         // of a return probe
  spec::DefinitionSet::Id id = 0;
  int definition = -1;       // as in Error
  bool live = true;          // not deleted
  bool on = true;            // not switched off
  bool was_refused = false;  // by the program that it was to join: it never was
  std::uint32_t owner = 0;   // a client; 0: the session's own
  bool is_free = false;      // its owner has left: another one's may have its number
  bool just_unseen = false;  // its filter drops hits of SessionOptions::unseen_thread, and no others
  EventCounts before = {};   // of those that have had its number
};

// Whether its records show names of code addresses.
bool shows_symbols(const Probe& probe);

// Whether the return address is at the stack pointer when the probe is hit: it is at a function's first instruction, or, as the kernel's
// unwinder takes it (arch/x86/events/core.c), at one that only stands there.
bool is_function_entry(const Probe& probe);

// Where the probe goes in its file, as event number `event`.
void add_points(const Probe& probe, std::uint16_t event, control::ProbeSet& to);

// Gives the objects that the probes read data of their numbers, once for each probe.
Status number_objects(std::vector<Probe>& probes, control::ProbeSet& in);

class ProbeBuilder {
 public:
  // Both outlive it. The flows are used by its calls alone.
  ProbeBuilder(const SessionOptions& options, plan::FlowCache& flows);
  ProbeBuilder(const ProbeBuilder&) = delete;
  ProbeBuilder& operator=(const ProbeBuilder&) = delete;

  // What is known of a file already holds for its probes too.
  void know(std::shared_ptr<const elf::ElfFile> file) { files_.know(std::move(file)); }
  // A line as uprobe_events takes it, deletions included. On an error all is as before. Error.definition counts the calls.
  Status read(const Definition& definition);
  // The probes of what was read since the last call. On an error none of it was read. The same of Error.definition.
  Result<std::vector<Probe>> make_new();
  // Of all that there are, as make_new() has given them.
  Result<SwitchPlan> plan_switches(const std::vector<Probe>& probes) const;
  // Of make_new(), and not deleted since.
  bool has(spec::DefinitionSet::Id id) const { return definitions_.by_id().count(id) != 0; }
  void forget(spec::DefinitionSet::Id id) { definitions_.erase(id); }

  // What is worth a line: functions that a pattern matched and that cannot be probed.
  const std::vector<std::string>& notes() const { return resolver_.notes(); }

 private:
  Result<Probe> make(const spec::ProbeSpec& definition, unsigned event_number);
  std::map<spec::DefinitionSet::Id, unsigned> event_numbers() const;
  Status plan_returns(Probe& probe);
  Status add(const Definition& definition);

  const SessionOptions& options_;
  plan::FileCache files_;
  plan::FlowCache& flows_;
  plan::ReturnPlanner planner_;
  LocationResolver resolver_;
  spec::DefinitionSet definitions_;
  spec::DefinitionSet::Id made_ = 0;  // all below
  int reads_ = 0;
  std::map<spec::DefinitionSet::Id, int> read_by_;  // which read() has defined it
  const unsigned cpus_ = program::possible_cpus();
};

}  // namespace uprobe
