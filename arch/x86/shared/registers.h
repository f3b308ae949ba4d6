// SPDX-License-Identifier: MIT
// The register file, by the kernel's names, and what its registers are for. Known in the tool and in the target.
#pragma once

#include <cstdint>

namespace uprobe::shared {

// The registers that a fetch argument can name, in the order of struct Registers.
enum class Reg : std::uint8_t {
  ax,
  bx,
  cx,
  dx,
  si,
  di,
  bp,
  sp,
  r8,
  r9,
  r10,
  r11,
  r12,
  r13,
  r14,
  r15,
  ip,
  flags,
  cs,
  ss,
  orig_ax,
};
inline constexpr std::uint32_t kRegCount = 21;
inline constexpr std::uint32_t kWalkRegisters = 17;  // by which a caller may be found: ax..r15, ip

// System V ABI x86-64, section 3.2. Reg::sp, Reg::ip and Reg::flags every machine has.
inline constexpr Reg kReturnRegister = Reg::ax, kUpperReturnRegister = Reg::dx, kFrameRegister = Reg::bp;
inline constexpr Reg kArgumentRegisters[] = {Reg::di, Reg::si, Reg::dx, Reg::cx, Reg::r8, Reg::r9};
// Of a system call.
inline constexpr Reg kCallNumberRegister = Reg::ax;
inline constexpr Reg kCallArgumentRegisters[] = {Reg::di, Reg::si, Reg::dx, Reg::r10, Reg::r8, Reg::r9};
// The registers that a function has to leave as it found them.
inline constexpr Reg kKeptRegisters[] = {Reg::bx, Reg::bp, Reg::r12, Reg::r13, Reg::r14, Reg::r15};

inline constexpr std::uint64_t kRedZone = 128;  // below the stack pointer, in use without being reserved

// The application's registers at a hit. `ip` is the address of the probed instruction, `sp` what it was before it.
struct Registers {
  std::uint64_t value[kRegCount];

  constexpr std::uint64_t operator[](Reg r) const { return value[static_cast<std::uint8_t>(r)]; }
  constexpr std::uint64_t& operator[](Reg r) { return value[static_cast<std::uint8_t>(r)]; }
};
static_assert(sizeof(Registers) == 168);

// Vector registers that a fetch argument can name: %xmm0..%xmm15, and %ymm0..%ymm15, whose lower halves these are.
inline constexpr std::uint32_t kVectorCount = 16, kXmmBytes = 16, kYmmBytes = 32;
inline constexpr std::uint32_t kFloatReturnVector = 0;  // what a function returns as a floating point number (xmm0)

}  // namespace uprobe::shared
