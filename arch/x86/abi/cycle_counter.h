// SPDX-License-Identifier: MIT
// The counter that hits are stamped by (uprobe_clock in arch/entry), read by the tool.
#pragma once

#include <x86intrin.h>

#include <cstdint>

namespace uprobe::arch {

// Neither before what comes first in the program nor after what comes later.
inline std::uint64_t read_cycles() {
  _mm_lfence();
  const std::uint64_t cycles = __rdtsc();
  _mm_lfence();
  return cycles;
}

}  // namespace uprobe::arch
