// SPDX-License-Identifier: MIT
// Shared by the tool and the agent: sizes, limits and the register file.
//
// engine/shared is the only folder that both the agent (inside the target) and the tool (outside) include. Rules:
//   - plain structs of fixed-width integers, no pointers, no functions that need a library;
//   - every struct is pinned by static_assert; a change of layout bumps kAbiVersion;
//   - the tool never trusts what it reads from here: it copies a field to a local, checks it, then uses it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uprobe::shared {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;
using i64 = std::int64_t;

inline constexpr u32 kAbiVersion = 14;

// Limits of the kernel's interface (kernel/trace/trace_probe.h, 6.18), mirrored.
inline constexpr u32 kMaxArguments = 128;
inline constexpr u32 kMaxStringBytes = 4096;  // characters and the NUL; a longer string is a fault
inline constexpr u32 kMaxPayload = 4072;      // one event's raw bytes; a larger hit is counted, not recorded
inline constexpr u32 kMaxFixedArguments = 3072;

// The registers that a fetch argument can name, in the order of struct Registers.
enum class Reg : u8 {
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
inline constexpr u32 kRegCount = 21;
inline constexpr u32 kWalkRegisters = 17;  // by which a caller may be found: ax..r15, ip

// The application's registers at a hit. `ip` is the address of the probed instruction, `sp` what it was before it.
struct Registers {
  u64 value[kRegCount];

  constexpr u64 operator[](Reg r) const { return value[static_cast<u8>(r)]; }
  constexpr u64& operator[](Reg r) { return value[static_cast<u8>(r)]; }
};
static_assert(sizeof(Registers) == 168);

// Vector registers that a fetch argument can name: %xmm0..%xmm15, and %ymm0..%ymm15, whose lower halves these are.
inline constexpr u32 kVectorCount = 16, kXmmBytes = 16, kYmmBytes = 32;

}  // namespace uprobe::shared
