// SPDX-License-Identifier: MIT
// A thread in the body of a trampoline, or in jump.S, in terms of the program: where the application's registers are
// (arch/shared/trampoline_frame.h).
#pragma once

#include "arch/entry/signal_frame.h"
#include "engine/shared/trampoline.h"

namespace uprobe::agent {

using shared::TrampolineDepth;
using shared::TrampolineFrame;

constexpr u64 kOverflow = 0x800;

inline constexpr u64 kReturnAddressBytes = 8;  // of a call, on the stack

template <std::size_t N>
constexpr u32 depth_at(const TrampolineDepth (&depths)[N], u32 distance) {
  u32 depth = 0;
  for (const TrampolineDepth& from : depths)
    if (distance >= from.at) depth = from.depth;
  return depth;
}

// The application's stack pointer.
inline u64 sp_of(const TrampolineFrame& kept, bool is_switched) {
  return is_switched ? *reinterpret_cast<const u64*>(&kept + 1) : reinterpret_cast<u64>(&kept) + shared::kFullDepth;
}

inline void take_registers(SignalFrame& frame, const TrampolineFrame& kept, bool is_switched) {
  frame.r8 = kept.r8;
  frame.di = kept.di;
  frame.si = kept.si;
  frame.dx = kept.dx;
  frame.cx = kept.cx;
  frame.ax = kept.ax;
  frame.sp = sp_of(kept, is_switched);
}

// A trap flag in the frame may be a debugger's, which pushfq does not hide.
inline void take_whole_frame(SignalFrame& frame, const TrampolineFrame& kept, bool is_switched) {
  take_registers(frame, kept, is_switched);
  frame.flags = (kept.flags & ~kTrapFlag) | (frame.flags & kTrapFlag);
}

inline void take_frame(SignalFrame& frame, const TrampolineFrame& kept, bool is_switched) {
  take_registers(frame, kept, is_switched);
  const u64 others = kept.flags >> 8 & 0xff & kArithmeticFlags;
  frame.flags = (frame.flags & ~kArithmeticFlags) | others | ((kept.flags & 1) != 0 ? kOverflow : 0);
}

inline const TrampolineFrame& frame_at(u64 sp) { return *reinterpret_cast<const TrampolineFrame*>(sp); }

// While the frame is being built all registers but rax, at the end, still hold their values.
inline const TrampolineFrame& undo_save(SignalFrame& frame, u32 distance, bool is_switched) {
  const TrampolineFrame& kept = frame_at(frame.sp + depth_at(shared::kSaveDepths, distance) - shared::kFullDepth);
  if (distance >= shared::kRaxSaved) frame.ax = kept.ax;
  frame.sp = sp_of(kept, is_switched);
  return kept;
}

inline const TrampolineFrame& finish_restore(SignalFrame& frame, u32 distance, bool is_switched) {
  const TrampolineFrame& kept = frame_at(frame.sp + depth_at(shared::kRestoreDepths, distance) - shared::kFullDepth);
  take_frame(frame, kept, is_switched);
  return kept;
}

// Between the two. `pushfq; pop %rax` is the only pair there that moves rsp.
inline const TrampolineFrame& take_kept(SignalFrame& frame, const shared::BodyHead& body, u32 at) {
  constexpr u8 kPopRax = 0x58;
  const bool pushed = *reinterpret_cast<const u8*>(frame.ip) == kPopRax;
  const TrampolineFrame& kept = frame_at(frame.sp + (pushed ? 8 : 0));
  const bool is_switched = body.claimed != 0;
  at >= body.whole_flags&& at < body.short_flags ? take_whole_frame(frame, kept, is_switched)
                                                 : take_frame(frame, kept, is_switched);
  return kept;
}

// Whether a thread there has claimed the ring that rdi points to.
inline bool has_claimed(const SignalFrame& frame, const shared::BodyHead& body, u32 at) {
  constexpr u64 kZero = 0x40;
  if (body.unclaim == 0) return false;
  if (at == body.claimed) return (frame.flags & kZero) != 0;
  return (at > body.claimed && at <= body.recorded) || at == body.unclaim;
}

// The place of that ring; and the register that a switch keeps in a word of the thread's.
inline u64 claimed_ring(const SignalFrame& frame) { return frame.di; }
inline u64& kept_by_switch(SignalFrame& frame) { return frame.cx; }

// The instructions that make the frame.
inline constexpr u32 kSaveBytes = 12;
static_assert(depth_at(shared::kSaveDepths, kSaveBytes) == shared::kFullDepth);

// A thread in jump.S after its record: rbp points to where that has saved it, below its return address, until it has been popped; its
// registers lie below.
struct JumpEntry {
  u64 base;
  bool has_link;  // rbp has not been popped
  u64 return_address;
  const TrampolineFrame* kept;
};
inline JumpEntry jump_entry_of(const SignalFrame& frame, bool has_popped) {
  const u64 base = has_popped ? frame.sp - 8 : frame.bp;
  return {base, !has_popped, *reinterpret_cast<const u64*>(base + 8), &frame_at(base + 16)};
}
// What is not in the trampoline's frame. `is_leaving`: r9 to r11 are the application's again.
inline void take_back(SignalFrame& frame, const JumpEntry& entry, bool is_leaving) {
  if (!is_leaving) {
    const auto& registers =
        *reinterpret_cast<const shared::Registers*>((entry.base - sizeof(shared::Registers)) & ~u64{15});
    frame.r9 = registers[shared::Reg::r9];
    frame.r10 = registers[shared::Reg::r10];
    frame.r11 = registers[shared::Reg::r11];
  }
  if (entry.has_link) frame.bp = *reinterpret_cast<const u64*>(entry.base);
}

// A thread in jump.S has made the call before which it came: what `syscall` leaves behind, and it goes on at `next`.
inline void finish_call(TrampolineFrame& kept, shared::Registers& registers, u64 next, long result) {
  using shared::Reg;
  kept.ax = static_cast<u64>(result);
  kept.cx = kept.copy = next;
  registers[Reg::r11] = registers[Reg::flags];
}
// A constant that the thread has loaded.
inline void put_loaded(TrampolineFrame& kept, shared::Registers& registers, shared::Reg to, u64 value) {
  using shared::Reg;
  registers[to] = value;
  kept.ax = registers[Reg::ax], kept.dx = registers[Reg::dx], kept.si = registers[Reg::si];
  kept.di = registers[Reg::di], kept.r8 = registers[Reg::r8];
}

}  // namespace uprobe::agent
