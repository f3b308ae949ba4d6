// SPDX-License-Identifier: MIT
// Machine facts that the agent reads without a system call.
#pragma once

#include "engine/shared/layout.h"

namespace uprobe::agent {

// The CPU this thread runs on. The kernel keeps number | node << 12 in the limit of a GDT segment so that the vDSO's
// getcpu can read it from user space (arch/x86/include/asm/segment.h, GDT_ENTRY_CPUNODE 15, RPL 3); lsl is not subject
// to UMIP and works where rdpid does not exist.
inline shared::u32 current_cpu() {
  shared::u32 limit = 0;
  asm volatile("lsl %1, %0" : "=r"(limit) : "r"(15u * 8 + 3) : "cc");
  return limit & 0xfff;
}

// The shadow stack pointer, 0 where there is none (rdsspq is a nop then: SDM vol. 1, 17.1.2).
inline shared::u64 shadow_stack() {
  shared::u64 pointer = 0;
  asm volatile(".byte 0xf3, 0x48, 0x0f, 0x1e, 0xc8" : "+a"(pointer));  // rdsspq %rax
  return pointer;
}

// Only where CR4.FSGSBASE is set: AT_HWCAP2, bit 1 (Documentation/arch/x86/x86_64/fsgs.rst).
inline shared::u64 read_thread_pointer() {
  shared::u64 base = 0;
  asm volatile(".byte 0xf3, 0x48, 0x0f, 0xae, 0xc0" : "=a"(base));  // rdfsbase %rax
  return base;
}

inline void spin() { asm volatile("pause"); }

}  // namespace uprobe::agent
