// SPDX-License-Identifier: MIT
// --skip-refused: what is refused of a list of definitions does not keep the others from being armed.
#pragma once

#include <functional>

#include "cli/diagnostics.h"
#include "cli/probes_file.h"
#include "engine/types.h"

namespace uprobe::cli {

// Takes refused definitions out of both lists until `prepare` accepts the others, with a line for each and one that counts them. An
// error that is about none of them is returned, as is the last one's when none is left.
Status prepare_others(SessionOptions& options, std::vector<std::string>& places,
                      const std::function<Status(const SessionOptions&)>& prepare, const Diagnostics& diagnostics);

// "skipped PLACE: 'DEFINITION': why"
std::string skipped_line(const Error& error, const Context& context);

}  // namespace uprobe::cli
