// SPDX-License-Identifier: MIT
// Numbers as text, for the output formats. The functions write to `at`, where there must be room, and return the end.
#pragma once

#include <emmintrin.h>

#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>

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

// Lower-case hexadecimal without padding. Always overwrites 16 bytes: the nibbles are spread to bytes and become text in one
// step.
inline char* put_hex(char* at, std::uint64_t value) {
  const auto digits = (static_cast<unsigned>(std::bit_width(value | 1)) + 3) / 4;
  const std::uint64_t left = value << (64 - 4 * digits);  // the first digit is the highest
  const __m128i low = _mm_set1_epi8(0x0f);
  const __m128i bytes = _mm_cvtsi64_si128(static_cast<long long>(__builtin_bswap64(left)));
  const __m128i nibbles = _mm_unpacklo_epi8(_mm_and_si128(_mm_srli_epi64(bytes, 4), low), _mm_and_si128(bytes, low));
  const __m128i letters = _mm_and_si128(_mm_cmpgt_epi8(nibbles, _mm_set1_epi8(9)), _mm_set1_epi8('a' - '0' - 10));
  const __m128i text = _mm_add_epi8(_mm_add_epi8(nibbles, _mm_set1_epi8('0')), letters);
  std::memcpy(at, &text, sizeof text);
  return at + digits;
}

}  // namespace uprobe::format
