// SPDX-License-Identifier: MIT
// The output of --explain: in plain words what a probe will do, where, how, at what cost, and what would make it cheaper.
#pragma once

#include <string>
#include <vector>

#include "engine/types.h"

namespace uprobe::cli {

// A paragraph for each probe, an empty line between them. Costs are those of docs/numbers.md.
std::string render_explanation(const std::vector<PlanReport>& reports);

}  // namespace uprobe::cli
