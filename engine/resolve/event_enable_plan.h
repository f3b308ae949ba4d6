// SPDX-License-Identifier: MIT
// Decides which events can be off, and compiles the triggers that switch them: from the text of definitions to the contents of
// a session area. Internal to the session.
#pragma once

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

// Whether a trigger shows names of code addresses.
bool shows_addresses(const SwitchPlan& plan);

// `layouts`: per probe, of its event. An error is about a trigger: Error::where is its text.
Result<SwitchPlan> plan_switches(const spec::DefinitionSet& definitions,
                                 const std::vector<program::EventLayout>& layouts, unsigned cpus);

}  // namespace uprobe
