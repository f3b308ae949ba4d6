// SPDX-License-Identifier: MIT
// A definition with a condition: "p:e PATH:PLACE fd=%di if fd == 2". What follows the word `if` is the filter of the events that
// the line defines (engine/program/filter.h), as behind a trigger's command. No fetch argument is that word: as a variable it
// could have no name, in no language that has debug information. The kernel's dialect has no conditions.
#pragma once

#include <optional>
#include <string_view>

#include "engine/base/result.h"

namespace uprobe::spec {

struct Conditional {
  std::string_view definition;  // with its comment, if there is no condition
  std::string_view line;        // all but the comment
  std::optional<std::string_view> filter = {};
  std::size_t filter_at = 0;  // in the line
};

// Parts of `line`. A '#' inside quotes of the filter begins no comment. An error where nothing follows the `if`.
Result<Conditional> split_condition(std::string_view line, bool strict);

}  // namespace uprobe::spec
