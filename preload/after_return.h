// SPDX-License-Identifier: MIT
// Where a function is left: its registers as they are after the return.
#pragma once

#include "preload/agent.h"
#include "preload/stubs.h"

namespace uprobe::agent {

// Distances from the stack pointer at the point: to the return address (lead), and to the stack pointer after the return
// (moves). Both 0: no consumer wants the return.
struct Leaves {
  u32 lead, moves, restored;
};

// The instruction at the point is a return, leads to one, or is a jump to a function that returns in its stead: sets the
// registers to those after the return. False: the stack cannot be read, so no return will happen; the program's next step is
// the load that faults here.
inline bool step_after_return(Hit& hit, const Leaves& leaves) {
  Registers& registers = *hit.registers;
  const u64 sp = registers[shared::Reg::sp];
  u64 address = 0;
  if (!uprobe_peek8(sp + leaves.lead, &address)) return false;
  registers[shared::Reg::ip] = past_stubs(address);  // after a tail call it may be a stub's
  for (u32 i = 0; leaves.restored != 0 && i < sizeof shared::kKeptRegisters; ++i) {
    const u32 word = shared::restored_at(leaves.restored, i);
    if (word != 0 && !uprobe_peek8(sp + 8 * (word - 1), &registers[shared::kKeptRegisters[i]])) return false;
  }
  registers[shared::Reg::sp] += leaves.moves;
  return true;
}

}  // namespace uprobe::agent
