// SPDX-License-Identifier: MIT
// Numbers as text, for the output formats. The functions write to `at`, where there must be room, and return the end.
#pragma once

#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>

#include "arch/abi/hex_digits.h"

namespace uprobe::format {

inline constexpr std::size_t kMostDigits = 20;  // a 64-bit number with its sign

inline char* put_decimal(char* at, std::uint64_t value) { return std::to_chars(at, at + kMostDigits, value).ptr; }
inline char* put_signed(char* at, std::int64_t value) { return std::to_chars(at, at + kMostDigits, value).ptr; }

// "00" to "99" in sequence.
inline constexpr auto kDigitPairs = [] {
  std::array<char, 200> pairs{};
  for (std::size_t i = 0; i < 100; ++i) {
    pairs[2 * i] = static_cast<char>('0' + i / 10);
    pairs[2 * i + 1] = static_cast<char>('0' + i % 10);
  }
  return pairs;
}();

// Exactly six digits of a value below a million.
inline char* put_six(char* at, std::uint32_t value) {
  std::memcpy(at, &kDigitPairs[2 * (value / 10000)], 2);
  std::memcpy(at + 2, &kDigitPairs[2 * (value / 100 % 100)], 2);
  std::memcpy(at + 4, &kDigitPairs[2 * (value % 100)], 2);
  return at + 6;
}

// Lower-case hexadecimal without padding. Always overwrites 16 bytes.
inline char* put_hex(char* at, std::uint64_t value) {
  const auto digits = (static_cast<unsigned>(std::bit_width(value | 1)) + 3) / 4;
  const std::uint64_t left = value << (64 - 4 * digits);  // the first digit is the highest
  arch::put_hex_digits(at, left);
  return at + digits;
}

}  // namespace uprobe::format
