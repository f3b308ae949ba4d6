// SPDX-License-Identifier: MIT
// Function events: a prototype of the traced function, whose arguments are fetched.
//
//   [PATH:]FUNCTION(ARG, ARG | ARG, NULL, ...)
//   ARG = TYPE NAME {+BYTES | [N]} | TYPE NAME=ADDRESS | TYPE ADDRESS
//
//   TYPE     u8..u64 s8..s64 x8..x64, unsigned before them; C's integers in any of its spellings, bool, size_t, uint32_t and
//   the
//            like; TYPE *, struct NAME *; symbol, string; TYPE[N] is an array in memory, of char a string with room for N
//            characters; float, double: in vector registers, which are counted by themselves
//   NAME     the argument's value. [N] reads ((TYPE *)NAME)[N]; +BYTES before it adds to the address; text after [N] goes
//            on from the pointer read there: p+40[0]+16 is 16 bytes into the memory that the pointer 40 bytes into p points to
//   ADDRESS  0xNUMBER, the file's own, or $SYMBOL: the memory there; it uses no argument
//   A | B    two readings of one argument; NULL: an argument that is not read
//
// Such an event is an event like any other (the same program and record) with the return address as its first field,
// __parent_ip, and prints as caller->function(NAME=VALUE, ...).
#pragma once

#include <string_view>

#include "engine/base/result.h"
#include "engine/spec/parse.h"
#include "engine/spec/probe_spec.h"

namespace uprobe::spec {

inline constexpr const char* kFunctionGroup = "functions";
inline constexpr const char* kParentField = "__parent_ip";

// Whether a line can only be one: a '(' follows the first word, which is no "p:" or "r:", and no "p" or "r" before a blank.
bool is_function_event(std::string_view line);

// Error.where is the line without its comment, Error.column counts in it.
Result<ProbeSpec> parse_function_event(std::string_view line, const ParseOptions& options);

}  // namespace uprobe::spec
