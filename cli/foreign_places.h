// SPDX-License-Identifier: MIT
// Places in the words of bpftrace, perf, gdb, strace and ltrace.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace uprobe::cli {

// What a text of another tool means here.
struct Meant {
  std::vector<std::string> places;  // definitions
  std::string problem;              // why it cannot be taken as it stands; empty: it can
  std::string trigger = {};         // of each place; empty: none
};

// Nothing: the text is no other tool's.
std::optional<Meant> meaning_of(std::string_view text);

// A place or definition in this tool's words. Taken as it stands: what is no other tool's. Translated: "uprobe:PATH:FUNCTION",
// "uretprobe:...", "break PLACE", "FUNCTION@LIBRARY", "EVENT=PLACE". An error, whose help is the definition to give instead: what a
// definition cannot say, and probes of the kernel.
Result<std::string> translated_place(const std::string& text);

// The options for a meaning: "-p PLACE --trigger=hist:keys=n".
std::vector<std::string> options_for(const Meant& meant);
// A line of words for a shell.
std::string as_line(const std::vector<std::string>& words);

// A word for a shell, in quotes where it needs some.
std::string quoted(const std::string& word);

}  // namespace uprobe::cli
