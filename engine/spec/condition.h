// SPDX-License-Identifier: MIT
// A definition with a condition: "p:e PATH:PLACE fd=%di if fd == 2". The text after the word `if` is the filter of the events
// that the line defines (engine/program/filter.h), as after a trigger's command. No fetch argument is that word: no language
// with debug information has a variable of that name. The kernel's dialect has no conditions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace uprobe::spec {

struct Conditional {
  std::string_view definition;  // with its comment, if there is no condition
  std::string_view line;        // all but the comment
  std::optional<std::string_view> filter = {};
  std::size_t filter_at = 0;  // in the line
};

// Parts of `line`. A '#' inside quotes of the filter begins no comment. An error if nothing follows the `if`.
Result<Conditional> split_condition(std::string_view line, bool strict);

// The line with further words (each after a blank) as its last arguments: before its condition or its comment.
std::string with_words(std::string_view line, std::string_view words);

}  // namespace uprobe::spec
