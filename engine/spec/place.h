// SPDX-License-Identifier: MIT
// The place of a probe: "PATH:OFFSET", "PATH:SYMBOL+OFFS"; "%return" and "(REFCTR)" may follow.
#pragma once

#include <string_view>

#include "engine/base/result.h"
#include "engine/lex/words.h"
#include "engine/spec/parse.h"
#include "engine/spec/probe_spec.h"

namespace uprobe::spec {

// The object of functions that a program generates as it runs: "jit:NAME".
inline constexpr std::string_view kGeneratedCode = "jit";

// A marker (USDT): "sdt:PROVIDER:NAME", "OBJECT:sdt:PROVIDER:NAME".
inline constexpr std::string_view kMarker = "sdt";
// The same with a format of its own (library/uprobe/marker.h): "mark:GROUP:NAME".
inline constexpr std::string_view kMark = "mark";

inline constexpr std::string_view kReturn = "%return";
inline constexpr std::string_view kOperator = "operator";  // no sign or bracket in such a name ends it

// Whether a file of this name is source code: "prog.c:42" is a line, "ld.bfd:42" an offset.
bool is_source_name(std::string_view name);

struct ParsedPlace {
  Place place;
  bool is_return = false;  // has %return
};

// Reads the command's second word.
Result<ParsedPlace> parse_place(const Command& command, const ParseOptions& options);

}  // namespace uprobe::spec
