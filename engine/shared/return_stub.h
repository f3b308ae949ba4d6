// SPDX-License-Identifier: MIT
// Return stubs: the code to which a probed function returns in stub mode.
//
// A stub belongs to one pair (point, return address), is filled in once and never changes: the return path follows from the
// address to which the function returns, on any stack, in any thread, any number of times. The code of all stubs is part of the
// agent (stub.S of arch/entry) and read-only. Each stub has a slot of data in the agent's own memory, private to the process:
//
//   stub   a breakpoint: so that an unwinder, which looks up the return address - 1, finds the stub
//   +1     push return_address; skip the red zone; push number; jmp uprobe_return_entry
//   slot   [ return_address | body | root | point | depth ]
//
// A return address that is itself in a stub makes a chain: the function was reached by a tail call. `root` is the address in
// the program where a chain ends; unwinders are told only that, so a chain is one frame to them.
#pragma once

#include "arch/shared/stub_layout.h"
#include "engine/shared/layout.h"

namespace uprobe::shared {

inline constexpr u32 kReturnStubs = 16384;     // number 0 is never used
inline constexpr u32 kStubHashBits = 15;       // number of a stub, 0: empty
inline constexpr u32 kMostChained = 3;         // stubs in a chain
inline constexpr u32 kPointsOfABudget = 4096;  // points whose numbers are equal modulo this share one
inline constexpr u32 kStubBudget = 4096;       // a stub takes 1 of it, a stub in a chain kChainedCost
inline constexpr u32 kChainedCost = 8;

struct ReturnSlot {
  u64 return_address;  // as found on the stack
  u64 body;            // the displaced copy of the point: names it in the pair
  u64 root;
  u32 point;  // index in the process block
  u32 depth;  // stubs below it in its chain
};
static_assert(sizeof(ReturnSlot) == kStubUnit);
static_assert(offsetof(ReturnSlot, return_address) == 0 && offsetof(ReturnSlot, root) == 16);

}  // namespace uprobe::shared
