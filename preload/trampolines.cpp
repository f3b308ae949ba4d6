// SPDX-License-Identifier: MIT
// Hits by jump in terms of the program: a thread inside a trampoline (a point's thunk, the body that it calls, or the agent's
// work for the body) either has not reached the probe point yet, or stands before the displaced instruction. For faults inside
// bodies see engine/shared/trampoline.h.
//
// The application's registers are in place, or in the body's frame, with the address of the point's copy. Words that were
// popped off that frame are still readable: they lie in the red zone, and the agent's signal frames do not overwrite that.
#include "preload/trampolines.h"

#include "arch/entry/cpu.h"
#include "preload/slots.h"
#include "preload/stubs.h"
#include "preload/system_call.h"

namespace uprobe::agent {
namespace {

using shared::BodyHead;
using shared::SlotHead;
using shared::TrampolineDepth;
using shared::TrampolineFrame;

constexpr u64 kOverflow = 0x800;

extern "C" {
// arch/x86/entry/jump.S
extern const u8 uprobe_jump_entry[] __attribute__((visibility("hidden")));
extern const u8 uprobe_jump_done[] __attribute__((visibility("hidden")));
extern const u8 uprobe_jump_leaves[] __attribute__((visibility("hidden")));
extern const u8 uprobe_jump_left[] __attribute__((visibility("hidden")));
extern const u8 uprobe_jump_late[] __attribute__((visibility("hidden")));
extern const u8 uprobe_jump_waits[] __attribute__((visibility("hidden")));
}

const BodyHead* as_body(u64 at) { return reinterpret_cast<const BodyHead*>(at); }

// Null: the address is in no body.
const BodyHead* body_around(const ProcessBlock& block, u64 ip) {
  const IslandPart island = island_around(block, ip);
  u64 at = ip & ~u64{shared::kBodyUnit - 1};
  for (; at >= island.begin && at < island.end && ip - at < shared::kMaxBodyBytes; at -= shared::kBodyUnit)
    if (as_body(at)->mark == (shared::kBodyMagic ^ at)) return ip - at < as_body(at)->bytes ? as_body(at) : nullptr;
  return nullptr;
}

// The slot of the hit that a frame belongs to.
const SlotHead& slot_of(const TrampolineFrame& kept) {
  return *reinterpret_cast<const SlotHead*>(kept.copy - shared::kCopyBehindThunk);
}

template <std::size_t N>
constexpr u32 depth_at(const TrampolineDepth (&depths)[N], u32 distance) {
  u32 depth = 0;
  for (const TrampolineDepth& from : depths)
    if (distance >= from.at) depth = from.depth;
  return depth;
}

void take_registers(SignalFrame& frame, const TrampolineFrame& kept) {
  frame.r8 = kept.r8;
  frame.di = kept.di;
  frame.si = kept.si;
  frame.dx = kept.dx;
  frame.cx = kept.cx;
  frame.ax = kept.ax;
  frame.sp = as_word(&kept) + shared::kFullDepth;
}

// A trap flag in the frame may be a debugger's, which pushfq does not hide.
void take_whole_frame(SignalFrame& frame, const TrampolineFrame& kept) {
  take_registers(frame, kept);
  frame.flags = (kept.flags & ~kTrapFlag) | (frame.flags & kTrapFlag);
}

void take_frame(SignalFrame& frame, const TrampolineFrame& kept) {
  take_registers(frame, kept);
  const u64 others = kept.flags >> 8 & 0xff & kArithmeticFlags;
  frame.flags = (frame.flags & ~kArithmeticFlags) | others | ((kept.flags & 1) != 0 ? kOverflow : 0);
}

const TrampolineFrame& frame_at(u64 sp) { return *reinterpret_cast<const TrampolineFrame*>(sp); }

// While the frame is being built all registers but rax, at the end, still hold their values.
const TrampolineFrame& undo_save(SignalFrame& frame, u32 distance) {
  const u64 sp = frame.sp + depth_at(shared::kSaveDepths, distance);
  const TrampolineFrame& kept = frame_at(sp - shared::kFullDepth);
  if (distance >= shared::kRaxSaved) frame.ax = kept.ax;
  frame.sp = sp;
  return kept;
}

const TrampolineFrame& finish_restore(SignalFrame& frame, u32 distance) {
  const TrampolineFrame& kept = frame_at(frame.sp + depth_at(shared::kRestoreDepths, distance) - shared::kFullDepth);
  take_frame(frame, kept);
  return kept;
}

// Between the two. `pushfq; pop %rax` is the only pair there that moves rsp.
const TrampolineFrame& take_kept(SignalFrame& frame, const BodyHead& body, u32 at) {
  constexpr u8 kPopRax = 0x58;
  const bool pushed = *reinterpret_cast<const u8*>(frame.ip) == kPopRax;
  const TrampolineFrame& kept = frame_at(frame.sp + (pushed ? 8 : 0));
  at >= body.whole_flags&& at < body.short_flags ? take_whole_frame(frame, kept) : take_frame(frame, kept);
  return kept;
}

Jump leave_body(SignalFrame& frame, const BodyHead& body) {
  constexpr u32 kSaved = 12;
  static_assert(depth_at(shared::kSaveDepths, kSaved) == shared::kFullDepth);
  const u32 at = static_cast<u32>(frame.ip - as_word(&body));
  if (at < body.code) return Jump::no;
  const bool recorded =
      (at >= body.recorded && at < body.slow) || at >= body.called || (body.lost != 0 && at == body.lost);
  const TrampolineFrame& kept = at < body.code + kSaved            ? undo_save(frame, at - body.code)
                                : at >= body.out && at < body.slow ? finish_restore(frame, at - body.out)
                                                                   : take_kept(frame, body, at);
  frame.ip = recorded ? kept.copy : slot_of(kept).address;
  return recorded ? Jump::recorded : Jump::arriving;
}

Jump leave_thunk(const ProcessBlock& block, SignalFrame& frame) {
  const Slot slot = slot_around(block, frame.ip);
  const u64 distance = frame.ip - (as_word(slot.head) + shared::kThunkInSlot);
  if (slot.head == nullptr || frame.ip >= slot.point->copy || distance >= shared::kThunkBytes) return Jump::no;
  if (distance >= shared::kThunkCall) frame.sp += shared::kSkippedRedZone;
  frame.ip = slot.head->address;
  return Jump::arriving;
}

// The long jump of a short one stands in padding, at an address that the program never executes.
Jump leave_padding(const ProcessBlock& block, SignalFrame& frame) {
  const Point* point = find_point(block, frame.ip);
  if (point == nullptr || !shared::is_long_jump(*point)) return Jump::no;
  const Slot slot = slot_around(block, point->jump_to);
  if (slot.head == nullptr) return Jump::no;
  frame.ip = slot.head->address;
  return Jump::arriving;
}

// Leaves the entry of the agent, whose stack is missing.
Jump leave_entry(const ProcessBlock& block, SignalFrame& frame) {
  if (body_around(block, *reinterpret_cast<const u64*>(frame.sp)) == nullptr) return Jump::no;
  const TrampolineFrame& kept = frame_at(frame.sp + 8);
  take_whole_frame(frame, kept);
  frame.ip = slot_of(kept).address;
  return Jump::arriving;
}

// Until the last two instructions rbp points to the place where jump.S has saved it, below its return address; its registers
// lie below.
Jump leave_end(const ProcessBlock& block, SignalFrame& frame) {
  const bool popped = frame.ip > as_word(uprobe_jump_leaves) && frame.ip < as_word(uprobe_jump_left);
  const u64 base = popped ? frame.sp - 8 : frame.bp;
  if (body_around(block, *reinterpret_cast<const u64*>(base + 8)) == nullptr) return Jump::no;
  if (frame.ip < as_word(uprobe_jump_leaves) || frame.ip >= as_word(uprobe_jump_left)) {
    const auto& registers = *reinterpret_cast<const Registers*>((base - sizeof(Registers)) & ~u64{15});
    frame.r9 = registers[shared::Reg::r9];
    frame.r10 = registers[shared::Reg::r10];
    frame.r11 = registers[shared::Reg::r11];
  }
  if (!popped) frame.bp = *reinterpret_cast<const u64*>(base);
  const TrampolineFrame& kept = frame_at(base + 16);
  take_whole_frame(frame, kept);
  frame.ip = kept.copy;
  return Jump::recorded;
}

}  // namespace

bool is_end_of_jump(u64 ip) { return ip == as_word(uprobe_jump_waits); }

// Only a return removes the thunk's return address from a shadow stack: there the thread has to go through.
Jump leave_trampoline(const ProcessBlock& block, SignalFrame& frame) {
  if (leave_stub(frame)) return Jump::recorded;
  const bool can_leave_call = shadow_stack() == 0;
  if (frame.ip == as_word(uprobe_jump_entry)) return can_leave_call ? leave_entry(block, frame) : Jump::no;
  if (is_in(frame.ip, uprobe_jump_done, uprobe_jump_left) || is_in(frame.ip, uprobe_jump_late, uprobe_jump_waits + 1))
    return can_leave_call ? leave_end(block, frame) : Jump::no;
  const BodyHead* body = body_around(block, frame.ip);
  if (body != nullptr) return can_leave_call ? leave_body(frame, *body) : Jump::no;
  const Jump thunk = leave_thunk(block, frame);
  return thunk != Jump::no ? thunk : leave_padding(block, frame);
}

u64 trampoline_fixup(const ProcessBlock& block, u64 ip) {
  const BodyHead* body = body_around(block, ip);
  if (body == nullptr) return 0;
  const u64 start = as_word(body);
  for (const shared::BodyFault& fault : body->faults)
    if (fault.insn != 0 && start + fault.insn == ip) return start + fault.fixup;
  return 0;
}

}  // namespace uprobe::agent
