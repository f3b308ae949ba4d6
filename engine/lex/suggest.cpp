// SPDX-License-Identifier: MIT
// Edit distances, and names that users know from C and from other tools.
#include "engine/lex/suggest.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/lex/words.h"

namespace uprobe::spec {
namespace {

constexpr std::string_view kTypes[] = {"u8", "u16", "u32", "u64", "s8",   "s16",    "s32",    "s64",
                                       "x8", "x16", "x32", "x64", "char", "string", "ustring"};

constexpr std::pair<std::string_view, std::string_view> kForeignTypes[] = {
    {"str", "string"},    {"char*", "string"}, {"int", "s32"},    {"int32_t", "s32"},  {"uint", "u32"},
    {"unsigned", "u32"},  {"uint32_t", "u32"}, {"long", "s64"},   {"int64_t", "s64"},  {"ssize_t", "s64"},
    {"ulong", "u64"},     {"uint64_t", "u64"}, {"size_t", "u64"}, {"short", "s16"},    {"int16_t", "s16"},
    {"ushort", "u16"},    {"uint16_t", "u16"}, {"uint8_t", "u8"}, {"int8_t", "s8"},    {"bool", "u8"},
    {"byte", "u8"},       {"pointer", "x64"},  {"ptr", "x64"},    {"void*", "x64"},    {"hex", "x64"},
    {"x", "x64"},         {"u", "u64"},        {"s", "string"},   {"d", "s64"},        {"i8", "s8"},
    {"i16", "s16"},       {"i32", "s32"},      {"i64", "s64"},    {"float", "f32"},    {"double", "f64"},
    {"__int128", "s128"}, {"int128", "s128"},  {"i128", "s128"},  {"uint128", "u128"},
};

// A longer word is hardly a mistyped name.
constexpr std::size_t kMaxGuess = 24;

// Levenshtein's distance with one row. Both words are short.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({changed, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[b.size()];
}

std::string did_you_mean(std::string_view better) {
  return better.empty() ? std::string() : "did you mean '" + std::string(better) + "'?";
}

bool all_digits(std::string_view word) { return !word.empty() && std::all_of(word.begin(), word.end(), is_digit); }

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string_view> candidates) {
  if (word.empty() || word.size() > kMaxGuess) return {};
  std::string_view best;
  std::size_t best_distance = word.size() <= 3 ? 2 : 3;  // one slip in a short word, two in a longer one
  for (const std::string_view candidate : candidates) {
    const std::size_t d = distance(word, candidate);
    if (d < best_distance && d < word.size()) {
      best = candidate;
      best_distance = d;
    }
  }
  return std::string(best);
}

std::string type_help(std::string_view type) {
  std::string small(type.substr(0, kMaxGuess + 1));
  for (char& c : small) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  if (small.empty()) return "write a type after the ':', such as u64, s32, x8, char or string";
  for (const auto& [foreign, ours] : kForeignTypes) {
    if (small == foreign) return did_you_mean(ours);
  }
  if (small == "f32" || small == "f64") return "uprobe events have no floating point; x32 and x64 show the bits";
  if (small[0] == 'b' && small.find('@') != std::string::npos)
    return "a bitfield is bWIDTH@OFFSET/CONTAINER with a container of 8, 16, 32 or 64 bits";
  if (small == "symbol" || small == "symstr") return "uprobe events have no symbols; x64 shows the address";
  const std::string near = nearest(small, kTypes);
  if (!near.empty()) return did_you_mean(near);
  return "types are u8..u64 s8..s64 x8..x64 char string ustring, bW@O/C, and TYPE[N]; not strict also symbol f32 f64 "
         "u128 s128 x128";
}

std::string definition_help(std::string_view word) {
  if (all_digits(word)) return "-p takes a probe definition; use -P " + std::string(word) + " to attach";
  if (word.starts_with("P:") || word.starts_with("R:") || word == "P" || word == "R")
    return "the 'p' or 'r' is lower case";
  if (word.starts_with('/')) return "write the kind of probe first: p " + std::string(word.substr(0, 100));
  return "for example: p:NAME PATH:SYMBOL %di";
}

}  // namespace uprobe::spec
