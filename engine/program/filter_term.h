// SPDX-License-Identifier: MIT
// One term of a filter: FIELD OPERATOR VALUE. Internal to this folder.
#pragma once

#include <string>
#include <string_view>

#include "engine/program/filter.h"
#include "engine/shared/filter.h"

namespace uprobe::program {

namespace filter_message {

inline constexpr std::string_view kBadOperator = "Invalid operator";
inline constexpr std::string_view kTooManyOpen = "Too many '('";
inline constexpr std::string_view kTooFewOpen = "Too few '('";
inline constexpr std::string_view kQuoteOpen = "Missing matching quote";
inline constexpr std::string_view kNoBraceOpen = "Missing '{'";
inline constexpr std::string_view kNoBraceClose = "Missing '}'";
inline constexpr std::string_view kTooLong = "Operand too long";
inline constexpr std::string_view kWantsString = "Expecting string field";
inline constexpr std::string_view kWantsNumber = "Expecting numeric field";
inline constexpr std::string_view kBadFieldOperator = "Illegal operation for field type";
inline constexpr std::string_view kNoField = "Field not found";
inline constexpr std::string_view kBadNumber = "Illegal integer value";
inline constexpr std::string_view kTooManyTerms = "Too many terms in predicate expression";
inline constexpr std::string_view kBadCpuList = "Invalid cpulist";
inline constexpr std::string_view kBadValue = "Invalid value (did you forget quotes)?";
inline constexpr std::string_view kNoFunction = "Function not found";
inline constexpr std::string_view kNoFilter = "No filter found";
inline constexpr std::string_view kError = "Error: (0)";

}  // namespace filter_message

enum class Truth { depends, always, never };

struct Term {
  Truth truth = Truth::depends;
  shared::Test test = {};  // without a target
};

// The kernel's ctype: Latin-1.
bool is_filter_space(char c);

// An error at a column; a column after the end means the end.
Error filter_error(std::string_view filter, std::size_t column, std::string_view message, int err);

// Reads the term that begins at `at`, and moves `at` after it. Adds the term's text to `texts`.
Result<Term> read_term(std::string_view filter, std::size_t& at, const EventLayout& layout,
                       const FilterContext& context, std::string& texts);

}  // namespace uprobe::program
