// SPDX-License-Identifier: MIT
// Vector registers at a hit. If a signal brought the hit, the kernel has saved them in the frame and given the handler fresh
// ones (arch/x86/kernel/fpu/signal.c); otherwise they still hold the application's values. Part of the hit path's translation unit (preload/CMakeLists.txt).
#include "preload/agent.h"

namespace uprobe::agent {
namespace {

// vectors.S: a register of the application that the thread still holds. `number` < shared::kVectorCount.
extern "C" {
__attribute__((visibility("hidden"))) void uprobe_store_xmm(u32 number, u64 (&to)[2]);
__attribute__((visibility("hidden"))) void uprobe_store_ymm(u32 number, u64 (&to)[4]);
}

// The frame's area in XSAVE's standard format (SDM vol. 1, 13.4): the legacy region with the kernel's own words in its last
// bytes (struct _fpx_sw_bytes), a header, the upper halves of the YMM registers. CPUID gives the last offset, which is the
// same on all processors; the tool checks it (arch/code/vector_state.h).
constexpr u64 kXmm = 160, kMagic = 464, kSaved = 472, kHeader = 512, kYmmUpper = 576;
constexpr u32 kMagicOfXsave = 0x46505853;  // FP_XSTATE_MAGIC1: there is a header
constexpr u64 kSse = 2, kAvx = 4;          // state components

// The components that the area holds. The others are in their initial state: zero.
UPROBE_IN_SECTION u64 components_of(u64 area) {
  if (*reinterpret_cast<const u32*>(area + kMagic) != kMagicOfXsave) return kSse;
  return *reinterpret_cast<const u64*>(area + kSaved) & *reinterpret_cast<const u64*>(area + kHeader);
}

UPROBE_IN_SECTION void read_saved(u64 area, u32 number, u64 (&words)[4]) {
  const u64 components = components_of(area);
  for (u32 i = 0; i < 2; ++i) {
    const u64 at = 16 * number + 8 * i;
    words[i] = (components & kSse) != 0 ? *reinterpret_cast<const u64*>(area + kXmm + at) : 0;
    words[2 + i] = (components & kAvx) != 0 ? *reinterpret_cast<const u64*>(area + kYmmUpper + at) : 0;
  }
}

}  // namespace

// Not inlined: only a hit that records one needs the stack for it.
[[gnu::noinline]] UPROBE_IN_SECTION void read_vector(const Hit& hit, u32 number, u32 bytes, u8* to) {
  u64 words[4];
  if (hit.vectors != 0)
    read_saved(hit.vectors, number, words);
  else if (bytes > shared::kXmmBytes)
    uprobe_store_ymm(number, words);
  else
    uprobe_store_xmm(number, reinterpret_cast<u64(&)[2]>(words));
  for (u32 i = 0; i < bytes; ++i) to[i] = static_cast<u8>(words[i / 8] >> (8 * (i % 8)));
}

}  // namespace uprobe::agent
