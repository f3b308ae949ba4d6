// SPDX-License-Identifier: MIT
// A marker's arguments, as its notes describe them, become fetch arguments.
//
//   BYTES@OPERAND   BYTES: 1, 2, 4, 8, unsigned; with a '-' before it signed; with an 'f' after it a floating point number
//
// A note describes the arguments of one place; the compiler chooses the operands place by place, and sometimes the types. All
// places of an event have one record: a type that holds the values of all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arch/code/marker_operand.h"
#include "engine/base/result.h"
#include "engine/spec/probe_spec.h"

namespace uprobe::marker {

inline constexpr std::size_t kMostArguments = 12;

// A number's type: its bytes, and how it is read.
struct NumberType {
  spec::Kind kind = spec::Kind::unsigned_decimal;  // or signed_decimal, hex, floating
  std::uint8_t bytes = 8;
  bool operator==(const NumberType&) const = default;
};

struct NotedArgument {
  NumberType type;
  arch::MarkerOperand operand;
  std::string problem;  // not empty: why it cannot be fetched
};

// Of a note's text, at most kMostArguments and one more.
std::vector<NotedArgument> noted_arguments(std::string_view text);

// "s32", "x64", "f64"
std::string name_of(const NumberType& type);

// A type for the values of both; nothing: there is none. u64 and a signed type are shown as x64, in two's complement.
std::optional<NumberType> common_type(const NumberType& a, const NumberType& b);

// The following are about an argument as the user wrote it (spec::WrittenArgument), in which "$argN" is the marker's argument N.

// The number of the marker's argument in it; nothing: it has none.
std::optional<std::size_t> marker_argument(std::string_view written);
// Whether it is the argument itself, without a type: it has the type of the event's places.
bool is_untyped(std::string_view written);
// The same with a name for the field: "$arg2:string" is "arg2=$arg2:string"; without a name and a "$argN" of its own it is
// argK, K its position.
std::string with_name(std::string_view written, std::size_t position);

// The fetch for one place. `type`: of the event, for an argument that is_untyped(). `written` has a name.
Result<spec::Argument> fetch_argument(const std::string& written, const std::vector<NotedArgument>& noted,
                                      const std::optional<NumberType>& type);

}  // namespace uprobe::marker
