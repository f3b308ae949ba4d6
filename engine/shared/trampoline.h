// What the two worlds have in common, part 7: the head of a trampoline.
//
// A trampoline is machine code that the tool generates (arch/x86/code/trampoline.h) and writes into an island. Its head says
// what to do with faults and signals inside it, so that the agent needs no table: heads stand at multiples of
// kTrampolineUnit, so from any address in an island the head of its trampoline is found by going back
// (preload/trampolines.cpp).
//
//   [ TrampolineHead | literals | save | record, or nothing | restore, jump to the copy | call of the agent, jump to restore ]
//                               ^code         ^recorded       ^out                      ^slow
//
// The hit has been recorded, or counted as lost, from `recorded` to `slow`, at `lost`, and from `called` on.
#pragma once

#include "engine/shared/layout.h"

namespace uprobe::shared {

inline constexpr u64 kTrampolineMagic = 0x3131706d72747075;  // "uptrmp11"
inline constexpr u32 kTrampolineUnit = 64;
inline constexpr u32 kMaxTrampolineBytes = 4096;
inline constexpr u32 kTrampolineFaults = 3;

// A load that may fault, and where the thread goes on; distances from the head. 0, 0: none.
struct TrampolineFault {
  u16 insn, fixup;
};

struct TrampolineHead {
  u64 mark;   // kTrampolineMagic ^ its own address: nothing else in an island looks like this
  u64 point;  // address of its Point
  u16 bytes;  // of the whole trampoline
  u16 code;   // distance of the first instruction, as all that follow
  u16 recorded, out, slow;
  u16 lost;         // the jump behind the count of a lost record; 0: there is none
  u16 whole_flags;  // from here to `short_flags` TrampolineFrame::flags are all of them
  u16 called;       // behind the call of the agent
  u16 short_flags;
  u16 reserved;
  TrampolineFault faults[kTrampolineFaults];
};
static_assert(sizeof(TrampolineHead) == 48);

// What a trampoline keeps of the application, at its stack pointer; above it the red zone, then the application's stack. rbx,
// rbp and r9 to r15 stay where they are.
struct TrampolineFrame {
  u64 flags;  // the arithmetic ones: al = OF (setcc), ah = the others (lahf)
  u64 r8, di, si, dx, cx, ax;
};
static_assert(sizeof(TrampolineFrame) == 56);
inline constexpr u32 kSkippedRedZone = 128;

// The instructions that make the frame and that take it down: from where on (distances from `code` and `out`) rsp is how much
// lower than the application's.
struct TrampolineDepth {
  u8 at, depth;
};
inline constexpr u32 kFullDepth = kSkippedRedZone + sizeof(TrampolineFrame);
inline constexpr TrampolineDepth kSaveDepths[] = {{0, 0},   {5, 128},  {6, 136},  {7, 144},        {8, 152},
                                                  {9, 160}, {10, 168}, {12, 176}, {17, kFullDepth}};
inline constexpr u32 kRaxSaved = 13;  // from here on rax is not the application's: behind lahf
inline constexpr TrampolineDepth kRestoreDepths[] = {{0, kFullDepth}, {1, 176},  {6, 168},  {7, 160}, {8, 152},
                                                     {9, 144},        {10, 136}, {11, 128}, {19, 0}};

}  // namespace uprobe::shared
