// SPDX-License-Identifier: MIT
// A thread in a stub, or in uprobe_return_entry (stub.S), in terms of the program.
#pragma once

#include "arch/entry/signal_frame.h"
#include "arch/shared/signal_return.h"
#include "arch/shared/stub_layout.h"

namespace uprobe::agent {

// The frame of uprobe_return_entry.
struct ReturnFrame {
  shared::Registers registers;
  u64 number;
  u8 red_zone[128];
  u64 return_address;
};
static_assert(sizeof(ReturnFrame) == 312);

inline void take_registers(SignalFrame& frame, const ReturnFrame& kept) {
  using shared::Reg;
  const shared::Registers& r = kept.registers;
  frame.ax = r[Reg::ax], frame.cx = r[Reg::cx], frame.dx = r[Reg::dx], frame.si = r[Reg::si], frame.di = r[Reg::di];
  frame.r8 = r[Reg::r8], frame.r9 = r[Reg::r9], frame.r10 = r[Reg::r10], frame.r11 = r[Reg::r11];
  frame.flags = (frame.flags & ~kArithmeticFlags) | (r[Reg::flags] & kArithmeticFlags);
  frame.sp = reinterpret_cast<u64>(&kept + 1);
}

// How much lower the stack pointer is than after the return, by the offset in the stub; uprobe_return_entry follows its last instruction.
inline u64 depth_in_stub(u32 offset) {
  if (offset < shared::kStubSkips) return 0;
  if (offset < shared::kStubNumbers) return 8;
  return offset < shared::kStubLeaves ? 136 : 144;
}

// Whether eight bytes of code are where something returns to that no call stands before: the handlers of signals, and the functions
// of makecontext (__start_context of glibc: mov %rbx, %rsp; mov (%rsp), %rdi).
inline bool is_known_return(u64 code) {
  constexpr u64 kSevenBytes = (u64{1} << 56) - 1, kStartContext = 0x243c8b48dc8948;
  u8 bytes[sizeof code];
  __builtin_memcpy(bytes, &code, sizeof bytes);
  return shared::loads_signal_return(bytes) || (code & kSevenBytes) == kStartContext;
}

}  // namespace uprobe::agent
