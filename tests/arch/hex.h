// SPDX-License-Identifier: MIT
// Bytes written as hex digits, blanks allowed: "48 89 e5".
#pragma once

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace uprobe::arch::test {

inline std::vector<std::uint8_t> from_hex(std::string_view text) {
  std::string digits;
  for (const char c : text)
    if (c != ' ') digits.push_back(c);
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(static_cast<std::uint8_t>(std::strtoul(digits.substr(i, 2).c_str(), nullptr, 16)));
  return bytes;
}

inline std::string to_hex(std::span<const std::uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const auto byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

}  // namespace uprobe::arch::test
