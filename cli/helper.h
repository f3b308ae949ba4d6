// SPDX-License-Identifier: MIT
// The tool as the helper of a preloaded agent: `uprobe-run --preload-helper PAGE LIFELINE`, started by libuprobe.so in a
// program that has it in LD_PRELOAD. Its options are the environment variables UPROBE_*.
#pragma once

namespace uprobe::cli {

bool is_helper_call(int argc, char** argv);

// Serves the program until no process has its session any more. PAGE: descriptor of the page shared with the agent; LIFELINE: a
// pipe by which the agent sees that the helper lives. Returns the exit code, for which no process waits.
int run_helper(char** argv);

}  // namespace uprobe::cli
