// SPDX-License-Identifier: MIT
// Sixteen hexadecimal digits at once.
#pragma once

#include <emmintrin.h>

#include <cstdint>
#include <cstring>

namespace uprobe::arch {

// The digits of a number, the highest first, in lower case: the nibbles are spread to bytes and turned into text all at once.
inline void put_hex_digits(char* at, std::uint64_t value) {
  const __m128i low = _mm_set1_epi8(0x0f);
  const __m128i bytes = _mm_cvtsi64_si128(static_cast<long long>(__builtin_bswap64(value)));
  const __m128i nibbles = _mm_unpacklo_epi8(_mm_and_si128(_mm_srli_epi64(bytes, 4), low), _mm_and_si128(bytes, low));
  const __m128i letters = _mm_and_si128(_mm_cmpgt_epi8(nibbles, _mm_set1_epi8(9)), _mm_set1_epi8('a' - '0' - 10));
  const __m128i text = _mm_add_epi8(_mm_add_epi8(nibbles, _mm_set1_epi8('0')), letters);
  std::memcpy(at, &text, sizeof text);
}

}  // namespace uprobe::arch
