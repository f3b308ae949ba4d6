// SPDX-License-Identifier: MIT
// How thunks and bodies (engine/shared/trampoline.h) leave the stack: what the tool generates, and the agent has to understand of a
// thread that a signal finds there.
#pragma once

#include <cstdint>

#include "arch/shared/registers.h"

namespace uprobe::shared {

// lea -128(%rsp), %rsp; call body
inline constexpr std::uint32_t kThunkBytes = 10, kThunkCall = 5;  // distance of the call from the thunk's beginning

// The application's registers that a body saves, at its stack pointer; above them the red zone, then the application's stack.
// rbx, rbp and r9 to r15 stay in place.
struct TrampolineFrame {
  std::uint64_t flags;  // the arithmetic ones: al = OF (setcc), ah = the others (lahf)
  std::uint64_t r8, di, si, dx, cx, ax;
  std::uint64_t copy;  // the return address of the thunk's call
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
