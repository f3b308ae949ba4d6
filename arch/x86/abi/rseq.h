// SPDX-License-Identifier: MIT
// Abort handlers of restartable sequences, by their bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "arch/shared/kernel.h"

namespace uprobe::arch {

// Whether the signature after this byte is a number that an instruction loads or pushes: code that registers an rseq area passes
// it to the kernel (rseq(2)). Handlers use ud1 or nop with it as a displacement, which looks different.
constexpr bool loads_number(std::uint8_t before) {
  constexpr std::uint8_t kMove = 0xb8, kMoveMask = 0xf8, kPush = 0x68;
  return (before & kMoveMask) == kMove || before == kPush;
}

// Whether the bytes that end where a function begins, at an aligned address, fill the room before it, so that the last four are
// no signature: nops, zeros, int3. After the opcode of ud1 or nop, with which handlers hide a signature from disassemblers, they
// are one.
inline bool ends_in_padding(std::span<const std::uint8_t> before) {
  constexpr std::uint8_t kNop = 0x90, kInt3 = 0xcc, kEscape = 0x0f, kUd1 = 0xb9, kUd1Operand = 0x3d, kLongNop = 0x1f,
                         kNopOperand = 0x05;
  constexpr std::size_t kOpcode = 3, kSignature = sizeof shared::kRseqSignature;
  if (before.empty()) return false;
  if (before.size() >= kOpcode + kSignature) {
    const auto opcode = before.last(kOpcode + kSignature).first(kOpcode);
    const bool is_ud1 = opcode[1] == kUd1 && opcode[2] == kUd1Operand;
    const bool is_nop = opcode[1] == kLongNop && opcode[2] == kNopOperand;
    if (opcode[0] == kEscape && (is_ud1 || is_nop)) return false;
  }
  return before.back() == kNop || before.back() == kInt3 || before.back() == 0;
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
