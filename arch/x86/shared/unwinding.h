// SPDX-License-Identifier: MIT
// What unwind tables know of this machine (System V ABI x86-64, figure 3.36), and where a signal frame has the registers of the
// interrupted code (arch/x86/include/uapi/asm/sigcontext.h, struct ucontext). Known in the tool and in the target.
#pragma once

#include <cstdint>

namespace uprobe::shared {

// Numbers of registers. The return address has one as well, and lies right below the caller's frame.
inline constexpr std::uint32_t kUnwindFramePointer = 6, kUnwindStackPointer = 7, kUnwindReturnAddress = 16;

// From the stack pointer at the code to which a handler returns.
inline constexpr std::uint64_t kSignalFramePointerAt = 120, kSignalStackPointerAt = 160, kSignalCodeAt = 168;

}  // namespace uprobe::shared
