// SPDX-License-Identifier: MIT
// Single instructions that are known by their first bytes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "arch/code/relocate.h"

namespace uprobe::arch {

// Of the landing pad of indirect branches that the code begins with (endbr64); 0: it begins with none.
inline std::size_t landing_pad_bytes(Bytes code) {
  constexpr std::uint8_t kEndbr[] = {0xf3, 0x0f, 0x1e, 0xfa};
  return code.size() > sizeof kEndbr && std::equal(std::begin(kEndbr), std::end(kEndbr), code.begin()) ? sizeof kEndbr
                                                                                                       : 0;
}

// Whether one whole instruction is one that functions begin with: a landing pad, or the push of the frame pointer.
inline bool is_function_start(Bytes insn) {
  constexpr std::uint8_t kPushFramePointer = 0x55, kEndbr[] = {0xf3, 0x0f, 0x1e, 0xfa};
  return (insn.size() == 1 && insn[0] == kPushFramePointer) ||
         std::equal(insn.begin(), insn.end(), std::begin(kEndbr), std::end(kEndbr));
}

// Whether one whole instruction takes the flags from the stack, and with them perhaps the trap flag.
inline bool pops_flags(Bytes insn) {
  constexpr std::uint8_t kPopf = 0x9d, kOperandSize = 0x66;
  return insn[0] == kPopf || (insn.size() == 2 && insn[0] == kOperandSize && insn[1] == kPopf);
}

// A prefix that programs jump over: glibc over the lock of a single-threaded program.
inline bool is_skippable_prefix(std::uint8_t byte) { return byte == 0xf0; }

}  // namespace uprobe::arch
