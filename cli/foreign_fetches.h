// SPDX-License-Identifier: MIT
// What a definition records and asks, in words that are nearly this tool's: "work who, n", "work where n > 2", "work {n}".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cli/foreign_places.h"

namespace uprobe::cli {

// "f n if n > 2" of "f if n > 2": a filter knows only what is recorded. Names in the parentheses of a function are recorded. At a
// return, `retval` and `latency` are $retval and $latency.
std::string with_fields(const std::string& place);

// "work who, n": values with commas between them, after a place.
std::optional<Meant> of_listed_values(std::string_view text);

// "work n > 2", "work where n > 2", "work /n > 2/": a condition without its word.
std::optional<Meant> of_bare_condition(std::string_view text);

// "work {who} {n}", "work [n]".
std::optional<Meant> of_bracketed_values(std::string_view text);

}  // namespace uprobe::cli
