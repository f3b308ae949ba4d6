// SPDX-License-Identifier: MIT
// The kernel's ABI on this machine, as far as the tool and the agent have to agree on it. Known in the tool and in the target.
#pragma once

#include <cstdint>

namespace uprobe::shared {

// A signal handler in the kernel's form (struct sigaction of the kernel's ABI, uapi/asm/signal.h).
struct KernelSigaction {
  std::uint64_t handler;
  std::uint64_t flags;
  std::uint64_t restorer;
  std::uint64_t mask;
};
inline constexpr std::uint64_t kSaSiginfo = 4;
inline constexpr std::uint64_t kSaOnstack = 0x08000000;
inline constexpr std::uint64_t kSaRestart = 0x10000000;
inline constexpr std::uint64_t kSaNodefer = 0x40000000;
inline constexpr std::uint64_t kSaRestorer = 0x04000000;

// Numbers of signals (uapi/asm/signal.h): trap, segv, bus, fpe, ill.
inline constexpr std::uint32_t kFaultSignalNumbers[] = {5, 11, 7, 8, 4};

// Places in the thread control block, from the thread pointer (fs:0; struct pthread): glibc x86-64 since 2.10, musl 1.2. The
// agent accepts a layout if the robust list, nearly always empty, points to itself: in no other layout does that word hold its own
// address.
struct ControlBlockLayout {
  std::int32_t tid, list;
};
inline constexpr ControlBlockLayout kControlBlocks[] = {{0x2d0, 0x2e0}, {0x30, 0x88}};

// Where a thread's table of thread-local data is, from the thread pointer; in it the number of its entries, and of each module one entry,
// whose first word is the address of the data. glibc (dtv_t) has a second word, which is above 1 where the thread owns that memory; such
// an entry may be that of a module that is gone.
struct ModuleTableLayout {
  std::int32_t table, count;
  std::uint32_t entry_bytes;
};
inline constexpr ModuleTableLayout kModuleTables[] = {{8, -16, 16}, {8, 0, 8}};  // in the order of kControlBlocks

// What the kernel wants to see before every abort handler of a restartable sequence (glibc's RSEQ_SIG: the displacement of an ud1).
inline constexpr std::uint32_t kRseqSignature = 0x53053053;

inline constexpr std::uint32_t kAuditArch = 0xc000003e;  // AUDIT_ARCH_X86_64 (uapi/linux/audit.h)

}  // namespace uprobe::shared
