// SPDX-License-Identifier: MIT
// What users of bpftrace, perf, strace, gdb and ltrace type: places in the words of those tools, and whole command lines.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace uprobe::cli {

// A place or definition in this tool's words. Taken as it stands: what is no other tool's. Translated: "uprobe:PATH:FUNCTION",
// "uretprobe:...", "break PLACE", "FUNCTION@LIBRARY", "EVENT=PLACE". An error, whose help is the definition to give instead: what a
// definition cannot say, and probes of the kernel.
Result<std::string> translated_place(const std::string& text);

// Whether a word is a program that can be run.
using IsProgram = std::function<bool(const std::string&)>;

// The error of a refused command line; its help is the command that means what another tool would have done, as a line for a shell,
// if the arguments have a likeness to one.
Error with_translation(Error error, const std::vector<std::string>& arguments, const IsProgram& is_program);

}  // namespace uprobe::cli
