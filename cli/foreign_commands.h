// SPDX-License-Identifier: MIT
// Whole command lines of bpftrace, perf, strace, gdb and ltrace.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/base/result.h"

namespace uprobe::cli {

// Whether a word is a program that can be run.
using IsProgram = std::function<bool(const std::string&)>;

// The error of a refused command line; its help is the command that means what another tool would have done, as a line for a shell,
// if the arguments have a likeness to one.
Error with_translation(Error error, const std::vector<std::string>& arguments, const IsProgram& is_program);

}  // namespace uprobe::cli
