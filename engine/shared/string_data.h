// SPDX-License-Identifier: MIT
// Strings in a payload, as agent and tool read them back.
//
//   locator   length << 16 | place     length bytes at `place`, of which one is a NUL: the string
//             length << 16 | place     without a NUL: the string was cut after these characters
//             65535  << 16 | place     65,535 characters; the NUL of a string that was not cut is the byte after them, which is
//                                      no other string's, since no place is that far
//             1                        kCutToNothing: the string was cut before its first character
//             length 0 otherwise       a fault
//
// Other processes may have written locator and bytes: nothing outside of the payload is read, and bytes that mean nothing are a
// fault.
#pragma once

#include "engine/shared/layout.h"

namespace uprobe::shared {

inline constexpr u32 kCutToNothing = 1;

// Limits of sessions that are not strict. A locator has 16 bits for the place and 16 for the length, so the last string of a
// payload may begin where its first 64 KiB end.
inline constexpr u32 kUsualString = 4096;  // characters
inline constexpr u32 kMostString = 65535;
inline constexpr u32 kMostPayload = 2 * 65536;

struct StringData {
  const u8* at = nullptr;  // null: a fault
  u32 size = 0;            // characters
  bool is_cut = false;
};

// `bytes`, if none of them is a NUL.
[[gnu::always_inline]] constexpr u32 characters_before_nul(const u8* at, u32 bytes) {
  constexpr u64 kOnes = 0x0101010101010101, kHighs = 0x8080808080808080;
  u32 size = 0;
  while (!__builtin_is_constant_evaluated() && bytes - size >= 8) {
    u64 word = 0;
    __builtin_memcpy(&word, at + size, 8);
    if (((word - kOnes) & ~word & kHighs) != 0) break;
    size += 8;
  }
  while (size < bytes && at[size] != 0) ++size;
  return size;
}

// `locator`: loaded once. `fixed`: data begins no earlier.
[[gnu::always_inline]] constexpr StringData string_in(const u8* payload, u32 bytes, u32 fixed, u32 locator) {
  if (locator == kCutToNothing) return {payload, 0, true};
  const u32 place = locator & 0xffff, length = locator >> 16;
  if (length == 0 || place < fixed || place > bytes || length > bytes - place) return {};
  const u32 looked_at = length == kMostString && bytes - place > length ? length + 1 : length;
  const u32 size = characters_before_nul(payload + place, looked_at);
  return {payload + place, size < length ? size : length, size == looked_at};
}

}  // namespace uprobe::shared
