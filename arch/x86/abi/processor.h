// SPDX-License-Identifier: MIT
// What this processor, as the kernel has set it up, lets a program do.
#pragma once

#include <cpuid.h>
#include <sys/auxv.h>

namespace uprobe::arch {

// Whether the agent may read its thread pointer by an instruction (read_thread_pointer in arch/entry).
inline bool has_thread_pointer_instruction() {
  constexpr unsigned long kFsgsbase = 2;  // HWCAP2_FSGSBASE (uapi/asm/hwcap2.h)
  return (::getauxval(AT_HWCAP2) & kFsgsbase) != 0;
}

// Whether a program may read the number of its CPU by rdpid, which is faster than by a segment's limit; the kernel keeps the same
// word for both (arch/x86/kernel/cpu/common.c, setup_getcpu).
inline bool has_cpu_number_instruction() {
  constexpr unsigned kLeaf = 7, kRdpid = 1U << 22;  // SDM volume 2, CPUID
  unsigned a = 0, b = 0, c = 0, d = 0;
  return ::__get_cpuid_count(kLeaf, 0, &a, &b, &c, &d) != 0 && (c & kRdpid) != 0;
}

}  // namespace uprobe::arch
