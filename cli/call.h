// SPDX-License-Identifier: MIT
// What the parts of one call of the tool share, and how they answer.
#pragma once

#include <string>
#include <vector>

#include "cli/diagnostics.h"
#include "cli/engine.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/signals.h"

namespace uprobe::cli {

inline constexpr int kExitFailure = 125;  // the tool's own failures, also usage errors: 1 and 2 belong to the program

inline constexpr Outcome kFailed{kExitFailure, 0};

inline const std::vector<std::string> kNoArguments;

struct Call {
  Options options;
  Engine& engine;
  const Streams& streams;
  const Diagnostics& diagnostics;
  const std::vector<std::string>& arguments = kNoArguments;  // the command line, for advice on it
};

Outcome fail(const Call& call, const Error& error, int code = kExitFailure);

// Prints text that the user asked for; it is no error if the reader has gone away.
Outcome print(const Call& call, const std::string& text);

}  // namespace uprobe::cli
