// SPDX-License-Identifier: MIT
// Bare places: a definition without its first word, as people type a function's name.
//
//   PLACE [[NAME=]FETCH[:TYPE]] ...
//   PLACE = [OBJECT:]FUNCTION[+-OFFS][%return] | [OBJECT:]SOURCE:LINE | OBJECT:OFFSET, or the same in quotes
//
// FUNCTION may be a name as tools print it, with blanks, a parameter list and templates: "shop::Cart::add(shop::Item const&, int)".
// If no function has this name, names in parentheses at its end are its arguments': "malloc(size)" is "malloc size=$arg1", or
// "malloc size=$entry_arg1" at the return. OBJECT may be a library's name without path and version (engine/resolve/load_order.h).
#pragma once

#include <string>
#include <string_view>

#include "engine/base/result.h"
#include "engine/spec/parse.h"
#include "engine/spec/probe_spec.h"

namespace uprobe::spec {

// Whether parse_definition is to read the line: it begins with "p" or "r" as a word, "p:", "r3:" and the like, or with '-'.
bool starts_as_definition(std::string_view line);

// Error.where is the line, Error.column counts in it.
Result<ProbeSpec> parse_bare_place(std::string_view line, const ParseOptions& options);

// The bare place of the function's return: "f %di" becomes "f%return %di". A definition is returned unchanged.
std::string at_return(std::string_view line);

}  // namespace uprobe::spec
