// SPDX-License-Identifier: MIT
// The contents of islands: slots, thunks and bodies.
//
// Each probe point has a *slot*: a head that names the point, the displaced copy, which ends with a jump back, and the copy's
// marks. In the slot of a jump a *thunk* stands before the copy; it steps over the red zone and calls a *body*:
//
//   a jump:        [ SlotHead | thunk: skip the red zone; call body | copy | marks ]
//   a breakpoint:  [ SlotHead | copy | marks ]    and a prefix window (process_block.h)
//
// If the body records returns, an ExitHead stands before the SlotHead. All points of an island with the same event program
// share one body. It records the hit and returns to the copy:
//
//   [ BodyHead | literals | save | record, or nothing | restore, return over the red zone | call of the agent, jump to restore ]
//                         ^code         ^recorded       ^out                ^slow
//
// Where the stack is switched (arch/shared/trampoline_frame.h) kSwitchBytes of a switch stand before all that:
//
//   [ switch | ExitHead, or nothing | SlotHead | thunk: call body; back to the stack | copy | marks ]
//
// and the body records in a claimed ring, since no thread there has rseq.
//
// The body knows the point by its return address, which is where the copy begins: the slot's head is kCopyAfterThunk bytes
// before it. A thread from `recorded` to `slow`, or from `called` on has recorded its hit, or counted it as dropped; at any other
// place of the body it has not.
//
// The tool generates thunks, copies and bodies (arch/code), and never changes or moves them: threads may be inside, and the
// kernel may still hold the address of a body's rseq descriptor. Of a slot, only SlotHead::event changes later.
#pragma once

#include "arch/shared/trampoline_frame.h"
#include "engine/shared/layout.h"
#include "engine/shared/process_block.h"

namespace uprobe::shared {

inline constexpr u32 kSlotUnit = 16;  // slots begin and end at multiples of it
inline constexpr u32 kBodyUnit = 64;  // and bodies at multiples of this

// The body records for one event. For any other consumers it calls the agent.
inline constexpr u32 kAskAgent = ~u32{0};
// The agent as well, which makes the call that follows (is_before_call). jump.S of arch/entry knows the number.
inline constexpr u32 kMakesCall = ~u32{1};
// Written to the highest byte of the event alone: one store, so that no thread sees half of the change.
inline constexpr u32 kEventMark = 3;
inline constexpr u8 kNowAskAgent = 0xff, kNowRecord = 0;

struct SlotHead {
  u64 address;  // of the probe point
  u32 point;    // its index in the block's table
  u32 event;    // its only consumer, index in session 0's event table; negative: call the agent. Changes later
};
static_assert(sizeof(SlotHead) == 16 && offsetof(SlotHead, event) == 12);

// A multiple of kSlotUnit before the SlotHead.
struct ExitHead {
  u32 lead;      // bytes from the application's stack pointer to the return address
  u32 moves;     // bytes by which the stack pointer is higher after the return
  u64 function;  // address of its first instruction
};
static_assert(sizeof(ExitHead) == kSlotUnit);

inline constexpr u32 kThunkInSlot = sizeof(SlotHead);
inline constexpr u32 kCopyInSlot = sizeof(SlotHead);                    // of a breakpoint
inline constexpr u32 kCopyAfterThunk = sizeof(SlotHead) + kThunkBytes;  // of a jump
inline constexpr u32 kMaxCopyInSlot = kCopyAfterThunk + 256;  // end of the longest copy: marks have 8-bit offsets

// Whether a slot with this head at `at` is the point's. Copies in different slots have different addresses, so at no other
// multiple of kSlotUnit does this hold.
constexpr bool is_slot_of(const SlotHead& head, u64 at, const Point& point) {
  return head.address == point.address && (point.copy - at == kCopyInSlot || point.copy - at == kCopyAfterThunk);
}

inline constexpr u64 kBodyMagic = 0x31312d79646f6275;  // "ubody-11"
inline constexpr u32 kMaxBodyBytes = 4096;
inline constexpr u32 kBodyFaults = 3;

// A load that may fault, and the place at which the thread goes on; distances from the head. 0, 0: none.
struct BodyFault {
  u16 insn, fixup;
};

// Heads stand at multiples of kBodyUnit: going back from any address in a body finds its head.
struct BodyHead {
  u64 mark;   // kBodyMagic ^ its own address: no other data in an island looks like this
  u16 bytes;  // of the whole body
  u16 code;   // distance of the first instruction from the head, as all that follow
  u16 recorded, out, slow;
  u16 whole_flags;  // from here to `short_flags` TrampolineFrame::flags holds all flags
  u16 called;       // after the call of the agent
  u16 short_flags;
  // Of a body on a switched stack; 0, 0: it is none. `unclaim` 0: it does not record. `claimed` is right after the instruction that
  // claims a ring. A thread from there on to `recorded` (inclusive), or at `unclaim`, has it (has_claimed of arch/entry).
  u16 claimed, unclaim;
  BodyFault faults[kBodyFaults];
};
static_assert(sizeof(BodyHead) == 40);

}  // namespace uprobe::shared
