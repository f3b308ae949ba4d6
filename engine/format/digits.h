// Numbers as text, for the output formats: written to `at`, which has the room; the end is returned.
#pragma once

#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>

namespace uprobe::format {

inline constexpr std::size_t kMostDigits = 20;  // of a 64-bit number with its sign

inline char* put_decimal(char* at, std::uint64_t value) { return std::to_chars(at, at + kMostDigits, value).ptr; }
inline char* put_signed(char* at, std::int64_t value) { return std::to_chars(at, at + kMostDigits, value).ptr; }

// "00" to "99" one after the other.
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

// Lower-case hexadecimal without padding.
inline char* put_hex(char* at, std::uint64_t value) {
  const std::size_t digits = value == 0 ? 1 : (static_cast<std::size_t>(std::bit_width(value)) + 3) / 4;
  for (std::size_t i = digits; i-- > 0; value >>= 4) at[i] = "0123456789abcdef"[value & 15];
  return at + digits;
}

}  // namespace uprobe::format
