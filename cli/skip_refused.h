// SPDX-License-Identifier: MIT
// --skip-refused: a refused definition does not keep the others from being armed.
#pragma once

#include <functional>

#include "cli/diagnostics.h"
#include "cli/probes_file.h"
#include "engine/types.h"

namespace uprobe::cli {

// Removes refused definitions from both lists until `prepare` accepts the rest, with a line for each and one with their number.
// Returns an error that is about none of them, and the last one's error if none is left.
Status prepare_others(SessionOptions& options, std::vector<std::string>& places,
                      const std::function<Status(const SessionOptions&)>& prepare, const Diagnostics& diagnostics);

// "skipped PLACE: 'DEFINITION': why"
std::string skipped_line(const Error& error, const Context& context);

}  // namespace uprobe::cli
