// SPDX-License-Identifier: MIT
// What this processor, as the kernel has set it up, lets a program do.
#pragma once

#include <sys/auxv.h>

namespace uprobe::arch {

// Whether the agent may read its thread pointer by an instruction (read_thread_pointer in arch/entry).
inline bool has_thread_pointer_instruction() {
  constexpr unsigned long kFsgsbase = 2;  // HWCAP2_FSGSBASE (uapi/asm/hwcap2.h)
  return (::getauxval(AT_HWCAP2) & kFsgsbase) != 0;
}

}  // namespace uprobe::arch
