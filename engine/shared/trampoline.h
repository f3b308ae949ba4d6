// SPDX-License-Identifier: MIT
// What the two worlds have in common, part 7: what stands in islands.
//
// Each probe point has a *slot*. Its head says whose it is; the displaced copy, which ends with a jump back, and its marks
// follow. Where a jump leads to the slot, a *thunk* stands between, which skips the red zone and calls a *body*:
//
//   a jump:        [ SlotHead | thunk: lea -128(%rsp), %rsp; call body | copy | marks ]
//   a breakpoint:  [ SlotHead | copy | marks ]    and a prefix window (process_block.h)
//
// In front of the head stands an ExitHead where the body records returns.
//
// The body, one for all points of an island with the same event program, records the hit and goes on in the copy:
//
//   [ BodyHead | literals | save | record, or nothing | restore, ret $128 | call of the agent, jump to restore ]
//                         ^code         ^recorded       ^out                ^slow
//
// It knows the point by its return address, which is where the copy begins: the slot's head stands kCopyBehindThunk bytes
// before. The hit has been recorded, or counted as lost or dropped, from `recorded` to `slow`, at `lost`, and from `called` on.
//
// Thunks, copies and bodies are machine code that the tool generates (arch/x86/code) and never changes or moves again:
// threads may be inside, and the kernel may still know a body's rseq descriptor.
#pragma once

#include "engine/shared/layout.h"
#include "engine/shared/process_block.h"

namespace uprobe::shared {

inline constexpr u32 kSlotUnit = 16;  // slots begin and end at multiples of it
inline constexpr u32 kBodyUnit = 64;  // and bodies of this

// The body records for one event. Any other consumers: the agent does it.
inline constexpr u32 kAskAgent = ~u32{0};
// The highest byte of the word alone: says so from now on, by one write that no thread sees the half of.
inline constexpr u32 kEventMark = 3;
inline constexpr u8 kNowAskAgent = 0xff, kNowRecord = 0;

struct SlotHead {
  u64 address;  // of the probe point
  u32 point;    // its index in the block's table
  u32 event;  // its only consumer, index in the table of session 0; negative: ask the agent. The one word that changes later
};
static_assert(sizeof(SlotHead) == 16);

// A multiple of kSlotUnit in front of the SlotHead.
struct ExitHead {
  u32 lead;      // from the application's stack pointer to the return address
  u32 moves;     // how much higher the stack pointer is behind the return
  u64 function;  // address of its first instruction
};
static_assert(sizeof(ExitHead) == kSlotUnit);

inline constexpr u32 kThunkBytes = 10, kThunkCall = 5;  // the call's distance from the thunk's beginning
inline constexpr u32 kThunkInSlot = sizeof(SlotHead);
inline constexpr u32 kCopyInSlot = sizeof(SlotHead);                     // of a breakpoint
inline constexpr u32 kCopyBehindThunk = sizeof(SlotHead) + kThunkBytes;  // of a jump
inline constexpr u32 kMaxCopyInSlot = kCopyBehindThunk + 256;  // where copies end: marks have offsets of 8 bits

// Whether a slot with this head at `at` is the point's. Copies in different slots have different addresses, so no other
// multiple of kSlotUnit than the slot's own beginning passes.
constexpr bool is_slot_of(const SlotHead& head, u64 at, const Point& point) {
  return head.address == point.address && (point.copy - at == kCopyInSlot || point.copy - at == kCopyBehindThunk);
}

inline constexpr u64 kBodyMagic = 0x31312d79646f6275;  // "ubody-11"
inline constexpr u32 kMaxBodyBytes = 4096;
inline constexpr u32 kBodyFaults = 3;

// A load that may fault, and where the thread goes on; distances from the head. 0, 0: none.
struct BodyFault {
  u16 insn, fixup;
};

// Heads stand at multiples of kBodyUnit: from any address in a body its head is found by going back.
struct BodyHead {
  u64 mark;   // kBodyMagic ^ its own address: nothing else in an island looks like this
  u16 bytes;  // of the whole body
  u16 code;   // distance of the first instruction, as all that follow
  u16 recorded, out, slow;
  u16 lost;         // the jump behind the count of a lost record; 0: there is none
  u16 whole_flags;  // from here to `short_flags` TrampolineFrame::flags are all of them
  u16 called;       // behind the call of the agent
  u16 short_flags;
  u16 reserved;
  BodyFault faults[kBodyFaults];
};
static_assert(sizeof(BodyHead) == 40);

// What a body keeps of the application, at its stack pointer; above it the red zone, then the application's stack. rbx, rbp and
// r9 to r15 stay where they are.
struct TrampolineFrame {
  u64 flags;  // the arithmetic ones: al = OF (setcc), ah = the others (lahf)
  u64 r8, di, si, dx, cx, ax;
  u64 copy;  // the return address of the thunk's call
};
static_assert(sizeof(TrampolineFrame) == 64);
inline constexpr u32 kSkippedRedZone = 128;

// The instructions that make the frame and that take it down: from where on (distances from `code` and `out`) rsp is how much
// lower than the application's.
struct TrampolineDepth {
  u8 at, depth;
};
inline constexpr u32 kCalledDepth = kSkippedRedZone + 8;
inline constexpr u32 kFullDepth = kSkippedRedZone + sizeof(TrampolineFrame);
inline constexpr TrampolineDepth kSaveDepths[] = {{0, kCalledDepth}, {1, 144}, {2, 152}, {3, 160},
                                                  {4, 168},          {5, 176}, {7, 184}, {12, kFullDepth}};
inline constexpr u32 kRaxSaved = 8;  // from here on rax is not the application's: behind lahf
inline constexpr TrampolineDepth kRestoreDepths[] = {{0, kFullDepth}, {1, 184}, {6, 176},  {7, 168},
                                                     {8, 160},        {9, 152}, {10, 144}, {11, kCalledDepth}};

}  // namespace uprobe::shared
