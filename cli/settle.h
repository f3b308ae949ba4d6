// SPDX-License-Identifier: MIT
// What the options mean together, after each was read.
#pragma once

#include "cli/options.h"
#include "engine/base/result.h"

namespace uprobe::cli {

// Refuses options that exclude each other or that lack something, and gives the words after the options to those that take them.
Status settle(Options& options);

}  // namespace uprobe::cli
