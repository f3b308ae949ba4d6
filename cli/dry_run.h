// SPDX-License-Identifier: MIT
// The output of --dry-run: the place of each probe, the instruction there, and how it is hit.
#pragma once

#include <string>
#include <vector>

#include "engine/types.h"

namespace uprobe::cli {

// Several lines per definition, each with its newline.
std::string render_plan(const std::vector<PlanReport>& reports);

// One line for -v: "/bin/zsh:0x6ae40 (zfree): int3: why".
std::string plan_line(const PlanReport& report);

bool any_refused(const std::vector<PlanReport>& reports);

}  // namespace uprobe::cli
