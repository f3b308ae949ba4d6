// What the two worlds have in common, part 7: the head of a trampoline.
//
// A trampoline is machine code that the tool generates (arch/x86/code/trampoline.h) and writes into an island. Its head says
// what to do with faults inside it, so that the agent needs no table: heads stand at multiples of kTrampolineUnit, so from
// any address in an island the head of its trampoline is found by going back (preload/trampolines.cpp).
//
//   [ TrampolineHead | literals | code ]
#pragma once

#include "engine/shared/layout.h"

namespace uprobe::shared {

inline constexpr u64 kTrampolineMagic = 0x3131706d72747075;  // "uptrmp11"
inline constexpr u32 kTrampolineUnit = 64;
inline constexpr u32 kMaxTrampolineBytes = 4096;
inline constexpr u32 kTrampolineFaults = 4;

// A load that may fault, and where the thread goes on; distances from the head. 0, 0: none.
struct TrampolineFault {
  u16 insn, fixup;
};

struct TrampolineHead {
  u64 mark;   // kTrampolineMagic ^ its own address: nothing else in an island looks like this
  u64 point;  // address of its Point
  u32 bytes;  // of the whole trampoline
  u32 code;   // distance of the first instruction
  TrampolineFault faults[kTrampolineFaults];
};
static_assert(sizeof(TrampolineHead) == 40);

}  // namespace uprobe::shared
