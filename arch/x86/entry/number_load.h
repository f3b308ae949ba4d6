// SPDX-License-Identifier: MIT
// The instruction at a point before a call (is_load_before_open and is_load_before_call in arch/code), made in a thread's stead.
#pragma once

#include "arch/entry/signal_frame.h"

namespace uprobe::agent {

struct NumberLoad {
  shared::Reg to;
  u64 value;
};

inline shared::Reg register_encoded(u32 number) {
  using shared::Reg;
  constexpr Reg kOrder[] = {Reg::ax, Reg::cx, Reg::dx, Reg::bx, Reg::sp, Reg::bp, Reg::si, Reg::di};
  return number < 8 ? kOrder[number] : static_cast<Reg>(number);
}

// `code`: the instruction's bytes, which stand at `address`.
inline NumberLoad load_at(const u8* code, u64 address) {
  constexpr u32 kLong = 7;  // bytes of those with REX.W
  i32 value = 0;
  if ((code[0] & 0xf8) == 0x48) {
    __builtin_memcpy(&value, code + 3, sizeof value);
    const u64 extended = static_cast<u64>(i64{value});
    if (code[1] != 0x8d) return {register_encoded((code[2] & 7U) + ((code[0] & 1) != 0 ? 8U : 0U)), extended};
    return {register_encoded((code[2] >> 3 & 7U) + ((code[0] & 4) != 0 ? 8U : 0U)), address + kLong + extended};
  }
  const bool high = code[0] == 0x41;
  __builtin_memcpy(&value, code + (high ? 2 : 1), sizeof value);
  return {register_encoded((code[high ? 1 : 0] & 7U) + (high ? 8U : 0U)), static_cast<u32>(value)};
}

}  // namespace uprobe::agent
