// SPDX-License-Identifier: MIT
// The instruction at a point of role open_call (is_load_before_open in arch/code), made in a thread's stead.
#pragma once

#include "arch/entry/signal_frame.h"

namespace uprobe::agent {

// `mov $n, %eax`, `%edx` or `%edi`, which clears the upper half as well.
struct NumberLoad {
  shared::Reg to;
  u64 value;
};
inline NumberLoad load_at(const u8* code) {
  const u32 reg = code[0] & 7;
  u32 value = 0;
  __builtin_memcpy(&value, code + 1, sizeof value);
  return {reg == 0 ? shared::Reg::ax : reg == 2 ? shared::Reg::dx : shared::Reg::di, value};
}
inline u64& loaded_register(SignalFrame& frame, const NumberLoad& load) {
  return load.to == shared::Reg::ax ? frame.ax : load.to == shared::Reg::dx ? frame.dx : frame.di;
}

}  // namespace uprobe::agent
