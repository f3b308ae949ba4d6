// SPDX-License-Identifier: MIT
// What stands before a return address: the bytes of a call.
#pragma once

#include <cstdint>

namespace uprobe::shared {

inline constexpr std::uint32_t kLongestCall = 7;

// The length of a near call with opcode ff and this ModRM byte (SDM vol. 2, tables 2-2 and 2-3); 0: it is none.
constexpr std::uint32_t indirect_call_bytes(std::uint8_t modrm, std::uint8_t sib) {
  const std::uint32_t mode = modrm >> 6, base = modrm & 7;
  if ((modrm & 0x38) != 0x10) return 0;
  if (mode == 3) return 2;
  const std::uint32_t bytes = base == 4 ? 3 : 2;
  if (mode == 1) return bytes + 1;
  const bool is_wide = mode == 2 || base == 5 || (base == 4 && (sib & 7) == 5);
  return is_wide ? bytes + 4 : bytes;
}

// Whether the bytes may end with a call.
constexpr bool ends_with_call(const std::uint8_t (&bytes)[kLongestCall]) {
  constexpr std::uint8_t kCall = 0xe8, kGroup5 = 0xff;
  if (bytes[kLongestCall - 5] == kCall) return true;
  for (std::uint32_t length = 2; length <= kLongestCall; ++length) {
    const std::uint8_t* at = &bytes[kLongestCall - length];
    const std::uint8_t sib = length > 2 ? at[2] : std::uint8_t{0};
    if (at[0] == kGroup5 && indirect_call_bytes(at[1], sib) == length) return true;
  }
  return false;
}

}  // namespace uprobe::shared
