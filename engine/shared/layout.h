// SPDX-License-Identifier: MIT
// Shared by the tool and the agent: sizes and limits; the register file is the machine's (arch/shared/registers.h).
//
// engine/shared and arch/shared are the only folders that both the agent (inside the target) and the tool (outside) include. Rules:
//   - plain structs of fixed-width integers, no pointers, no functions that need a library;
//   - every struct is pinned by static_assert; a change of layout bumps kAbiVersion;
//   - the tool never trusts what it reads from here: it copies a field to a local, checks it, then uses it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arch/shared/registers.h"

namespace uprobe::shared {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;
using i64 = std::int64_t;

inline constexpr u32 kAbiVersion = 22;

// Limits of the kernel's interface (kernel/trace/trace_probe.h, 6.18), mirrored.
inline constexpr u32 kMaxArguments = 128;
inline constexpr u32 kMaxStringBytes = 4096;  // characters and the NUL; a longer string is a fault
inline constexpr u32 kMaxPayload = 4072;      // one event's raw bytes; a larger hit is counted, not recorded
inline constexpr u32 kMaxFixedArguments = 3072;

}  // namespace uprobe::shared
