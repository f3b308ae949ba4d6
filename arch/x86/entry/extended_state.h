// SPDX-License-Identifier: MIT
// The extended state that a signal frame points to.
#pragma once

#include "arch/entry/signal_frame.h"

namespace uprobe::agent {

inline constexpr u64 kExtendedAlignment = 64;

// In the legacy area of an xsave image (uapi/asm/sigcontext.h, struct _fpx_sw_bytes).
inline constexpr u64 kFpMagicAt = 464, kFpBytesAt = 468, kFpPlainBytes = 512;
inline constexpr u32 kFpMagic = 0x46505853;

inline u64 extended_bytes(u64 fpstate) {
  const auto* at = reinterpret_cast<const u8*>(fpstate);
  u32 magic = 0, bytes = 0;
  __builtin_memcpy(&magic, at + kFpMagicAt, 4);
  __builtin_memcpy(&bytes, at + kFpBytesAt, 4);
  return magic == kFpMagic ? bytes : kFpPlainBytes;
}

}  // namespace uprobe::agent
