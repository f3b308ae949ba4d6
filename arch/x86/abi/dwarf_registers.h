// SPDX-License-Identifier: MIT
// Numbers of registers in unwind tables and debug information (System V ABI x86-64, figure 3.36).
#pragma once

#include <cstddef>

#include "arch/shared/registers.h"
#include "arch/shared/unwinding.h"

namespace uprobe::arch {

// Those that unwind tables speak of; the last one is the return address.
inline constexpr std::size_t kFrameRegisters = 17;
inline constexpr std::size_t kFrameBx = 3, kFrameBp = shared::kUnwindFramePointer,
                             kFrameSp = shared::kUnwindStackPointer, kFrameIp = shared::kUnwindReturnAddress;
inline constexpr std::size_t kFramePointer = kFrameBp;
inline constexpr shared::Reg kByFrameNumber[kFrameRegisters] = {
    shared::Reg::ax,  shared::Reg::dx,  shared::Reg::cx,  shared::Reg::bx,  shared::Reg::si,  shared::Reg::di,
    shared::Reg::bp,  shared::Reg::sp,  shared::Reg::r8,  shared::Reg::r9,  shared::Reg::r10, shared::Reg::r11,
    shared::Reg::r12, shared::Reg::r13, shared::Reg::r14, shared::Reg::r15, shared::Reg::ip};
// Of which the instruction pointer is none of debug information.
inline constexpr std::size_t kDebugRegisters = kFrameRegisters - 1;
inline constexpr std::size_t kFirstVectorNumber = 17;  // xmm0

// Callee-saved registers (figure 3.4); tables do not mention those that a function leaves alone.
constexpr bool is_kept(std::size_t reg) { return reg == kFrameBx || reg == kFrameBp || (reg >= 12 && reg <= 15); }

}  // namespace uprobe::arch
