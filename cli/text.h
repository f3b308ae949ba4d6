// SPDX-License-Identifier: MIT
// Text for people: escapes text from outside, groups digits, guesses the name that was meant.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace uprobe::cli {

// A unit of a line: a character, or the escape for a byte that must not reach a terminal.
struct Glyph {
  std::string text;
  std::size_t width = 1;  // columns; every character counts as one
  std::size_t byte = 0;   // its position in the input
};

// Control bytes, broken UTF-8 and characters that reorder a line become \n, \t, \x1b, ...; a backslash stays as it is.
std::vector<Glyph> glyphs(std::string_view input);
std::string escape(std::string_view input);

// Escapes each line; the newlines stay.
std::string escape_lines(std::string_view lines);

// 1234567 -> "1,234,567"
std::string grouped(std::uint64_t number);

// "1 hit", "2 hits", "1,234 hits"
std::string counted(std::uint64_t number, std::string_view singular, std::string_view plural);

// The candidate that was most likely meant by `word`; empty when none is near enough.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace uprobe::cli
