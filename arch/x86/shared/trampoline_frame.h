// SPDX-License-Identifier: MIT
// How thunks and bodies (engine/shared/trampoline.h) leave the stack: what the tool generates, and the agent has to understand of a
// thread that a signal finds there.
#pragma once

#include <cstdint>

#include "arch/shared/registers.h"

namespace uprobe::shared {

// lea -128(%rsp), %rsp; call body
inline constexpr std::uint32_t kThunkBytes = 10, kThunkCall = 5;  // distance of the call from the thunk's beginning

// Where a stack may end right below its stack pointer (Go) nothing may be written there: the jump leads to a *switch* before the
// slot, to a stack of the agent's, and the thunk is another one:
//
//   switch   mov %rcx, %fs:8 ; mov %fs:0, %rcx     the thread's word, 0: it has no such stack yet
//            jrcxz to an int3                      then: changes no flags, and SIGTRAP is blocked in no handler
//            mov %rsp, (%rcx) ; mov %rcx, %rsp ; mov %fs:8, %rcx ; jmp to the thunk's call
//   thunk    nop ; call body ; pop %rsp
//
// The word at the top of that stack is the application's stack pointer, the one above it the body's; its frame lies below. In Go without a C library
// %fs:0 to %fs:39 are m.tls[1] to m.tls[5] of the thread's m, which the runtime has never used on Linux (runtime2.go, tlsSlots;
// sys_linux_amd64.s, settls).
inline constexpr std::uint8_t kSwitch[] = {0x64, 0x48, 0x89, 0x0c, 0x25, 8, 0, 0, 0,   // mov %rcx, %fs:8
                                           0x64, 0x48, 0x8b, 0x0c, 0x25, 0, 0, 0, 0,   // mov %fs:0, %rcx
                                           0xe3, 20,                                   // jrcxz
                                           0x48, 0x89, 0x21,                           // mov %rsp, (%rcx)
                                           0x48, 0x89, 0xcc,                           // mov %rcx, %rsp
                                           0x64, 0x48, 0x8b, 0x0c, 0x25, 8, 0, 0, 0};  // mov %fs:8, %rcx
inline constexpr std::uint32_t kSwitchJump = sizeof kSwitch, kSwitchTrap = kSwitchJump + 5, kSwitchBytes = 48;
// From there on rcx is not the application's, until the jump; and the stack pointer is not.
inline constexpr std::uint32_t kSwitchTakesRcx = 18, kSwitchIsOver = 26;
static_assert(kSwitch[kSwitchTakesRcx] == 0xe3 && kSwitchTakesRcx + 2 + kSwitch[kSwitchTakesRcx + 1] == kSwitchTrap);
inline constexpr std::uint32_t kStackWord = 0, kKeptRcx = 8;  // from the fs base
inline constexpr std::uint8_t kSwitchedNop[] = {0x0f, 0x1f, 0x40, 0};
inline constexpr std::uint32_t kSwitchedCall = sizeof kSwitchedNop;
inline constexpr std::uint32_t kStackRestoreBytes = 1;  // pop %rsp, between the call and the copy

// The application's registers that a body saves, at its stack pointer; above them the red zone, then the application's stack.
// rbx, rbp and r9 to r15 stay in place. On a switched stack the application's stack pointer stands right above.
struct TrampolineFrame {
  std::uint64_t flags;  // the arithmetic ones: al = OF (setcc), ah = the others (lahf)
  std::uint64_t r8, di, si, dx, cx, ax;
  std::uint64_t copy;  // the return address of the thunk's call: where the copy begins, or kStackRestoreBytes before
};
static_assert(sizeof(TrampolineFrame) == 64);
inline constexpr std::uint32_t kSkippedRedZone = kRedZone;

// Depth of rsp below the application's while the frame is built and taken down: from `at` (a distance from `code` or `out`) on
// it is `depth` bytes.
struct TrampolineDepth {
  std::uint8_t at, depth;
};
inline constexpr std::uint32_t kCalledDepth = kSkippedRedZone + 8;
inline constexpr std::uint32_t kFullDepth = kSkippedRedZone + sizeof(TrampolineFrame);
inline constexpr TrampolineDepth kSaveDepths[] = {{0, kCalledDepth}, {1, 144}, {2, 152}, {3, 160},
                                                  {4, 168},          {5, 176}, {7, 184}, {12, kFullDepth}};
inline constexpr std::uint32_t kRaxSaved = 8;  // from here on, after lahf, rax is not the application's
inline constexpr TrampolineDepth kRestoreDepths[] = {{0, kFullDepth}, {1, 184}, {6, 176},  {7, 168},
                                                     {8, 160},        {9, 152}, {10, 144}, {11, kCalledDepth}};

}  // namespace uprobe::shared
