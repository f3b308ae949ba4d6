// SPDX-License-Identifier: MIT
// Guesses for a mistaken word: the `help` line of an error.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace uprobe::spec {

// The candidate with the smallest edit distance to `word`, if that is small for the word's length; else empty.
std::string nearest(std::string_view word, std::span<const std::string_view> candidates);

// For an unknown type: "did you mean 'string'?".
std::string type_help(std::string_view type);

// For a first word other than 'p' or 'r'.
std::string definition_help(std::string_view word);

}  // namespace uprobe::spec
