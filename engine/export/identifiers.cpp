// SPDX-License-Identifier: MIT
#include "engine/export/identifiers.h"

#include <cstddef>

namespace uprobe::format {

namespace {

constexpr std::size_t kMostBytes = 200;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string identifier(std::string_view name) {
  std::string made(name.substr(0, kMostBytes));
  for (char& c : made)
    if (!is_letter(c) && !is_digit(c)) c = '_';
  return made.empty() || is_digit(made[0]) ? "_" + made : made;
}

std::string Identifiers::take(std::string_view name) {
  const std::string wanted = identifier(name);
  std::string made = wanted;
  for (int number = 2; !taken_.insert(made).second; ++number) made = wanted + "_" + std::to_string(number);
  return made;
}

}  // namespace uprobe::format
