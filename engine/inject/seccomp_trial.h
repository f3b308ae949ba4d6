// SPDX-License-Identifier: MIT
// What the filters of the tool itself do with the agent's calls: a child makes them, with arguments that have no effect.
#pragma once

#include <span>

namespace uprobe::control {

enum class TrialResult : char { not_made, made, refused, killed };

// In the order of agents_calls(). Found out once.
std::span<const TrialResult> own_filters_results();

}  // namespace uprobe::control
