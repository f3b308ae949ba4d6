// SPDX-License-Identifier: MIT
// One call of the tool: words -> definitions -> plan -> (list, dry run, or) launch, trace, summary -> how to end.
#pragma once

#include <string>
#include <vector>

#include "cli/call.h"
#include "cli/engine.h"
#include "cli/output.h"
#include "cli/signals.h"

namespace uprobe::cli {

inline constexpr int kExitNotExecutable = 126;  // as in env, timeout and nohup
inline constexpr int kExitNotFound = 127;

// `arguments` as main() gets them, the tool's own name first. Prints to `streams`; never exits.
Outcome run_cli(const std::vector<std::string>& arguments, Engine& engine, const Streams& streams);

// The exit code for an error in finding or starting the program.
int exit_code_of_launch(const Error& error);

}  // namespace uprobe::cli
