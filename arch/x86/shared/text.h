// SPDX-License-Identifier: MIT
// What is written into text: breakpoints and jumps. Known in the tool and in the target.
#pragma once

#include <cstdint>

namespace uprobe::shared {

inline constexpr std::uint8_t kBreakpoint = 0xcc;        // int3
inline constexpr std::uint32_t kBreakpointBytes = 1;     // the thread stops after it
inline constexpr std::uint32_t kJumpBytes = 5;           // jmp rel32
inline constexpr std::uint32_t kShortJumpBytes = 2;      // jmp rel8
inline constexpr std::uint64_t kJumpReach = 1ull << 31;  // of the longer one, in both directions

// Whether the bytes of a word end with one: int3, in one byte or in two.
constexpr bool ends_with_breakpoint(std::uint32_t bytes) {
  constexpr std::uint32_t kTwoBytes = 0x03cd;
  return bytes >> 24 == kBreakpoint || bytes >> 16 == kTwoBytes;
}

// The jump of `length` bytes, one of the two, that stands at `from`.
constexpr void put_jump(std::uint8_t* bytes, std::uint32_t length, std::uint64_t from, std::uint64_t to) {
  const std::uint64_t distance = to - (from + length);
  bytes[0] = length == kShortJumpBytes ? 0xeb : 0xe9;
  for (std::uint32_t i = 1; i < length; ++i) bytes[i] = static_cast<std::uint8_t>(distance >> (8 * (i - 1)));
}

inline constexpr std::uint32_t kSystemCallBytes = 2;  // syscall
inline constexpr std::uint32_t kBeforeOpen = 5;       // bytes of the last instruction before an open: mov $n, %reg32

}  // namespace uprobe::shared
