// SPDX-License-Identifier: MIT
// Which events can be off, and the triggers that turn them on and off: from the words of the definitions to what a session area
// holds. Of the session's inside.
#pragma once

#include <vector>

#include "engine/base/result.h"
#include "engine/spec/definition_set.h"
#include "engine/trace/area.h"

namespace uprobe {

struct SwitchPlan {
  std::vector<trace::EventSwitch> switches;  // of each probe; empty: no event is ever off
  std::vector<program::TriggerProgram> triggers;
  std::vector<trace::EventHistogram> histograms;
};

// Whether a trigger shows names of code addresses.
bool shows_addresses(const SwitchPlan& plan);

// `layouts`: of each probe's event. An error is about a trigger: Error::where is its text.
Result<SwitchPlan> plan_switches(const spec::DefinitionSet& definitions,
                                 const std::vector<program::EventLayout>& layouts, unsigned cpus);

}  // namespace uprobe
