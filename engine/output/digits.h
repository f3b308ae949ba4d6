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

// Exactly 19 digits.
inline char* put_padded(char* at, std::uint64_t value) {
  constexpr int kDigits = 19;
  for (int i = kDigits - 1; i >= 0; --i, value /= 10) at[i] = static_cast<char>('0' + value % 10);
  return at + kDigits;
}

// A number of 16 bytes.
struct WideNumber {
  std::uint64_t upper = 0, lower = 0;
};
inline constexpr std::size_t kMostWideDigits = 40;  // with its sign

// Overwrites 16 bytes beyond its end at most.
inline char* put_wide_hex(char* at, WideNumber number) {
  if (number.upper == 0) return put_hex(at, number.lower);
  at = put_hex(at, number.upper);
  arch::put_hex_digits(at, number.lower);
  return at + 16;
}

inline char* put_wide(char* at, WideNumber number, bool is_signed) {
  __extension__ using Wide = unsigned __int128;
  Wide value = Wide{number.upper} << 64 | number.lower;
  if (is_signed && number.upper >> 63 != 0) {
    *at++ = '-';
    value = 0 - value;
  }
  constexpr std::uint64_t kPart = 10'000'000'000'000'000'000u;  // 19 digits
  if (value < kPart) return put_decimal(at, static_cast<std::uint64_t>(value));
  const Wide above = value / kPart;
  if (above < kPart)
    at = put_decimal(at, static_cast<std::uint64_t>(above));
  else
    at = put_padded(put_decimal(at, static_cast<std::uint64_t>(above / kPart)),
                    static_cast<std::uint64_t>(above % kPart));
  return put_padded(at, static_cast<std::uint64_t>(value % kPart));
}

}  // namespace uprobe::format
