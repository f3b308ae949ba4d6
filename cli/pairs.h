// SPDX-License-Identifier: MIT
// --leak and --pair: definitions whose records engine/pairs/pairs.h puts together.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/diagnostics.h"
#include "cli/options.h"
#include "cli/probes_file.h"
#include "engine/types.h"

namespace uprobe::cli {

// "malloc", "PLACE:malloc": adds the definitions of the functions that allocate and free.
Status add_leak(Options& options, const std::string& value);
// "PLACE:KEY[/SIZE] -> PLACE:KEY"
Status add_pair(Options& options, const std::string& value);

// Whether they go with the rest of the command line. Chooses the format of the report.
Status settle_pairs(Options& options);

// How an engine takes definitions, and shows where they are then.
struct Preparer {
  std::function<Status(const SessionOptions&)> prepare;
  std::function<std::vector<PlanReport>()> report;
};

// Leaves out C++'s functions of --leak where they do not matter. Changes both lists.
void choose_allocators(SessionOptions& options, Definitions& definitions, const Preparer& preparer);
// Prepares, and leaves out those functions of --leak that the program does not have, or that cannot be probed; of the
// latter a line says so. Changes both lists.
Status prepare_pairs(SessionOptions& options, Definitions& definitions, const Preparer& preparer,
                     const Diagnostics& diagnostics);

}  // namespace uprobe::cli
