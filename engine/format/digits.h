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

// Eight hexadecimal digits, the first one in the lowest byte: the nibbles are spread to bytes and turned into text all at
// once.
constexpr std::uint64_t eight_hex_digits(std::uint32_t value) {
  std::uint64_t spread = value;
  spread = (spread | spread << 16) & 0x0000ffff0000ffff;
  spread = (spread | spread << 8) & 0x00ff00ff00ff00ff;
  spread = (spread | spread << 4) & 0x0f0f0f0f0f0f0f0f;
  const std::uint64_t letters = (spread + 0x0606060606060606) >> 4 & 0x0101010101010101;
  return __builtin_bswap64(spread + 0x3030303030303030 + letters * ('a' - '0' - 10));
}

// Lower-case hexadecimal without padding. Overwrites 16 bytes, however few digits there are.
inline char* put_hex(char* at, std::uint64_t value) {
  const std::size_t digits = value == 0 ? 1 : (static_cast<std::size_t>(std::bit_width(value)) + 3) / 4;
  const std::uint64_t left = value << (64 - 4 * digits);  // the first digit is the highest
  const std::uint64_t first = eight_hex_digits(static_cast<std::uint32_t>(left >> 32));
  const std::uint64_t second = eight_hex_digits(static_cast<std::uint32_t>(left));
  std::memcpy(at, &first, sizeof first);
  std::memcpy(at + sizeof first, &second, sizeof second);
  return at + digits;
}

}  // namespace uprobe::format
