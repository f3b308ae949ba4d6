// SPDX-License-Identifier: MIT
// The report on pairs: for each group and process that has opened something, what it still holds by stack, and the times by key.
#pragma once

#include <map>
#include <string>

#include "engine/output/buffer.h"
#include "engine/pairs/pairs.h"

namespace uprobe::format {

// The largest first; of each list the first ones, and how much the others are.
void add_report(const std::map<std::string, PairGroup>& groups, const PairStacks& stacks, Buffer& out);
// All, as an array of objects: a line for each group and process.
void add_json_report(const std::map<std::string, PairGroup>& groups, const PairStacks& stacks, Buffer& out);

}  // namespace uprobe::format
