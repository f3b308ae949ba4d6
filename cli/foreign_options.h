// SPDX-License-Identifier: MIT
// Options of tools whose letters mean something else here, each with its tool; and the commands of such tools.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace uprobe::cli {

enum class ForeignOption {
  flag,          // has no value, and no likeness here
  value,         // has a value, and no likeness here
  place,         // a function, perhaps with what is recorded of it
  returning,     // the same at its return
  expression,    // a regular expression of functions
  events,        // a list of events, or a program
  library,       // all functions of a library
  program,       // the program to run
  command,       // the same with its arguments
  process,       // process ids
  process_name,  // processes of that name
  list,          // only lists functions
  stacks,        // with stacks
};

// Nothing: the tool has no such option, or it is this tool's own.
std::optional<ForeignOption> meaning_of_option(std::string_view tool, std::string_view option);

// The first word of a command line that is a tool's name, or a command of perf.
bool is_foreign_tool(std::string_view word);

// What a command after the tool's name does.
enum class ForeignCommand { traces, prints, lists };
std::optional<ForeignCommand> foreign_command(std::string_view tool, std::string_view word);

// What is nearest to a tool's work when its line names no place.
std::vector<std::string> example_of_tool(std::string_view tool);

// perf's and trace-cmd's events that are no functions: counters, groups of the kernel's trace points, "all".
bool is_event_of_kernel(std::string_view event);

// A definition of uftrace's "greet@arg1/s,arg2", "greet@retval"; with a time, depth or another flag after the '@' the function alone.
std::string place_of_uftrace(std::string_view text);

}  // namespace uprobe::cli
