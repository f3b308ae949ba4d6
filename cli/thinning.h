// SPDX-License-Identifier: MIT
// --sample, --rate and --min-latency: which part of the hits is recorded.
#pragma once

#include "cli/options.h"
#include "engine/program/thinning.h"

namespace uprobe::cli {

// Whether they go with the rest of the command line. A graph chooses among calls itself, and so needs the short ones too.
Status settle_thinning(const Options& options);

// What the target leaves out.
program::Thinning thinning_of(const Options& options);

}  // namespace uprobe::cli
