// SPDX-License-Identifier: MIT
// Decides which events can be off, and compiles the triggers that switch them: from the text of definitions to the contents of
// a session area. Internal to the session.
#pragma once

#include <functional>
#include <vector>

#include "engine/base/result.h"
#include "engine/spec/definition_set.h"
#include "engine/trace/area.h"

namespace uprobe {

struct SwitchPlan {
  std::vector<trace::EventSwitch> switches;  // per probe; empty: no event is ever off
  std::vector<program::TriggerProgram> triggers;
  std::vector<trace::EventHistogram> histograms;
};

// Where a trigger that sets errno finds it; none: it does not.
struct ErrnoSource {
  shared::ErrnoPlace place = shared::ErrnoPlace::none;
  std::uint64_t at = 0;
  std::uint32_t libc = 0;  // number of the object
};

// Which triggers that change the program are accepted.
struct ChangeRules {
  bool are_allowed = true;
  bool may_call_back = false;  // call=, which is for a process that has made the gate itself
  // Looks whether the place of a probe can be changed so; an Error's text reads on from nothing. Null: places are not known.
  std::function<Result<ErrnoSource>(std::size_t probe, const program::TriggerSpec& trigger)> look = {};
};

// Whether a trigger changes the program at the places of a probe.
bool changes_program(const SwitchPlan& plan, std::size_t probe);

// Whether a trigger shows names of code addresses.
bool shows_addresses(const SwitchPlan& plan);
// Whether the agent unwinds stacks, to count by them.
bool has_stack_keys(const SwitchPlan& plan);

// `layouts`: per probe, of its event. An error is about a trigger: Error::where is its text.
Result<SwitchPlan> plan_switches(const spec::DefinitionSet& definitions,
                                 const std::vector<program::EventLayout>& layouts, unsigned cpus,
                                 const ChangeRules& rules = {});

}  // namespace uprobe
