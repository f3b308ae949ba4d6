// SPDX-License-Identifier: MIT
// The definitions of a run, gathered from -p and -i in the order given.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "engine/types.h"

namespace uprobe::cli {

struct Definitions {
  std::vector<Definition> list;
  std::vector<std::string> places;  // for messages, one for each: "-p", "probes.txt:3"
};

// The sources' whole texts as they are, each a write to uprobe_events; places: "-p", "probes.txt".
Result<Definitions> gather_writes(const std::vector<ProbeSource>& sources, int standard_input);

// `standard_input` is what "-i -" reads. Blank lines and lines of comment are left away.
Result<Definitions> gather_definitions(const std::vector<ProbeSource>& sources, int standard_input);

}  // namespace uprobe::cli
