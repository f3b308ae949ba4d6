// SPDX-License-Identifier: MIT
// Abort handlers of restartable sequences, by their bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "arch/shared/kernel.h"

namespace uprobe::arch {

// Whether the signature after this byte is a number that an instruction loads or pushes: code that registers an rseq area passes it
// to the kernel (rseq(2)). Handlers use ud1 or nop with it as a displacement, which looks different.
constexpr bool loads_number(std::uint8_t before) {
  constexpr std::uint8_t kMove = 0xb8, kMoveMask = 0xf8, kPush = 0x68;
  return (before & kMoveMask) == kMove || before == kPush;
}

// Where a direct jump at the beginning of `code`, which stands at `at`, leads.
inline std::optional<std::uint64_t> jump_target(std::span<const std::uint8_t> code, std::uint64_t at) {
  constexpr std::uint8_t kJump = 0xe9, kShortJump = 0xeb;
  if (code.size() >= 5 && code[0] == kJump) {
    std::int32_t distance = 0;
    std::memcpy(&distance, &code[1], sizeof distance);
    return at + 5 + static_cast<std::uint64_t>(distance);
  }
  if (code.size() >= 2 && code[0] == kShortJump)
    return at + 2 + static_cast<std::uint64_t>(static_cast<std::int8_t>(code[1]));
  return std::nullopt;
}

}  // namespace uprobe::arch
