// SPDX-License-Identifier: MIT
// What the two worlds have in common, part 8: return stubs.
//
// A stub is where a function returns to that is probed at its return. It belongs to one pair (point, return address), is
// filled in once and stays so: the way home follows from the address that the function returns to, whoever executes it on
// whatever stack, and however often. The code of all stubs is part of the agent (arch/x86/entry/stub.S) and never written;
// what makes them different are their slots, in the agent's own memory, private to the process:
//
//   stub   int3: who looks up the address before the one that is returned to is to find the stub
//   +1     push return_address; skip the red zone; push number; jmp uprobe_return_entry
//   slot   [ return_address | body | root | point | depth ]
//
// A return address that is itself in a stub makes a chain: the function was reached by a tail call. `root` is where a chain
// ends in the program; unwinders are told of that only, so that a chain is one frame to them.
#pragma once

#include "engine/shared/layout.h"

namespace uprobe::shared {

inline constexpr u32 kStubUnit = 32;           // bytes of a stub, and of a slot
inline constexpr u32 kReturnStubs = 16384;     // number 0 is never given
inline constexpr u32 kStubReturns = 1;         // where in the stub the body returns to
inline constexpr u32 kStubSkips = 7;           // the return address is back in its place
inline constexpr u32 kStubNumbers = 12;        // the red zone is skipped
inline constexpr u32 kStubLeaves = 17;         // the number is on the stack
inline constexpr u32 kStubHashBits = 15;       // number of a stub, 0: empty
inline constexpr u32 kMostChained = 3;         // stubs in a chain
inline constexpr u32 kPointsOfABudget = 4096;  // points whose numbers are equal modulo this share one
inline constexpr u32 kStubBudget = 4096;       // a stub takes 1 of it, one in a chain kChainedCost
inline constexpr u32 kChainedCost = 8;

struct ReturnSlot {
  u64 return_address;  // as it was found on the stack
  u64 body;            // the displaced copy of the point: its name in the pair
  u64 root;
  u32 point;  // index in the process block
  u32 depth;  // stubs below it in its chain
};
static_assert(sizeof(ReturnSlot) == kStubUnit);
static_assert(offsetof(ReturnSlot, return_address) == 0 && offsetof(ReturnSlot, root) == 16);

}  // namespace uprobe::shared
