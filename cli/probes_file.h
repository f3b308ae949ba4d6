// SPDX-License-Identifier: MIT
// Collects the definitions of a run from -p and -i, in the order given.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "engine/types.h"

namespace uprobe::cli {

struct Definitions {
  std::vector<Definition> list;
  std::vector<std::string> places;  // for messages, one per definition: "-p", "probes.txt:3"
};

// The complete text of each source, as one write to uprobe_events; places: "-p", "probes.txt".
Result<Definitions> gather_writes(const std::vector<ProbeSource>& sources, int standard_input);

// The hits of all definitions record their stacks.
void add_stacks(Definitions& definitions);

// `standard_input`: the descriptor that "-i -" reads. Skips blank lines and comment lines.
Result<Definitions> gather_definitions(const std::vector<ProbeSource>& sources, int standard_input);

}  // namespace uprobe::cli
