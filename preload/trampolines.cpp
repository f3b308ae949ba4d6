// SPDX-License-Identifier: MIT
// Hits by jump in terms of the program: a thread inside a trampoline (a point's thunk, the body that it calls, or the agent's
// work for the body) either has not reached the probe point yet, or stands before the displaced instruction. For faults inside
// bodies see engine/shared/trampoline.h.
//
// The application's registers are in place, or in the body's frame, with the address of the point's copy. Words that were
// popped off that frame are still readable: they lie in the red zone, and the agent's signal frames do not overwrite that.
#include "preload/trampolines.h"

#include "arch/entry/cpu.h"
#include "arch/entry/trampoline_registers.h"
#include "preload/slots.h"
#include "preload/stubs.h"
#include "preload/system_call.h"
#include "preload/thread.h"

namespace uprobe::agent {
namespace {

using shared::BodyHead;
using shared::SlotHead;
using shared::TrampolineFrame;

extern "C" {
// jump.S of arch/entry
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

// On a switched stack (arch/shared/trampoline_frame.h).
bool is_switched(const BodyHead& body) { return body.claimed != 0; }

u64 copy_of(const BodyHead& body, const TrampolineFrame& kept) {
  return kept.copy + (is_switched(body) ? shared::kStackRestoreBytes : 0);
}

// The slot of the hit that a frame belongs to.
const SlotHead& slot_of(const BodyHead& body, const TrampolineFrame& kept) {
  return *reinterpret_cast<const SlotHead*>(copy_of(body, kept) - shared::kCopyAfterThunk);
}

// No other thread looks at what a record under way has left there.
void give_ring_back(const SignalFrame& frame) {
  __atomic_store_n(&reinterpret_cast<Ring*>(claimed_ring(frame))->owner, 0, __ATOMIC_RELEASE);
}

Jump leave_body(SignalFrame& frame, const BodyHead& body) {
  const u32 at = static_cast<u32>(frame.ip - as_word(&body));
  if (at < body.code) return Jump::no;
  const bool recorded = (at >= body.recorded && at < body.slow) || at >= body.called;
  const bool switched = is_switched(body);
  if (has_claimed(frame, body, at)) give_ring_back(frame);
  const TrampolineFrame& kept = at < body.code + kSaveBytes        ? undo_save(frame, at - body.code, switched)
                                : at >= body.out && at < body.slow ? finish_restore(frame, at - body.out, switched)
                                                                   : take_kept(frame, body, at);
  frame.ip = recorded ? copy_of(body, kept) : slot_of(body, kept).address;
  return recorded ? Jump::recorded : Jump::arriving;
}

bool has_switched_thunk(const SlotHead& head) {
  return __builtin_memcmp(&head + 1, shared::kSwitchedNop, sizeof shared::kSwitchedNop) == 0;
}

// Before the call, or after it.
Jump leave_switched_thunk(SignalFrame& frame, const SlotHead& head) {
  const bool is_recorded = frame.ip - as_word(&head + 1) > shared::kSwitchedCall;
  frame.sp = *reinterpret_cast<const u64*>(frame.sp);
  frame.ip = is_recorded ? as_word(&head) + shared::kCopyAfterThunk : head.address;
  return is_recorded ? Jump::recorded : Jump::arriving;
}

Jump leave_switch(const ProcessBlock& block, SignalFrame& frame) {
  const u64 begin = switch_around(block, frame.ip), distance = frame.ip - begin;
  if (begin == 0) return Jump::no;
  if (distance >= shared::kSwitchIsOver && distance <= shared::kSwitchJump)
    frame.sp = *reinterpret_cast<const u64*>(frame.sp);
  if (distance >= shared::kSwitchTakesRcx && distance != shared::kSwitchJump)
    uprobe_peek8(thread_pointer() + shared::kKeptRcx, &kept_by_switch(frame));
  frame.ip = slot_of_switch(block, begin).head->address;
  return Jump::arriving;
}

Jump leave_thunk(const ProcessBlock& block, SignalFrame& frame) {
  const Slot slot = slot_around(block, frame.ip);
  const u64 distance = frame.ip - (as_word(slot.head) + shared::kThunkInSlot);
  if (slot.head == nullptr || frame.ip >= slot.point->copy || distance >= shared::kThunkBytes) return Jump::no;
  if (has_switched_thunk(*slot.head)) return leave_switched_thunk(frame, *slot.head);
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
  const BodyHead* body = body_around(block, *reinterpret_cast<const u64*>(frame.sp));
  if (body == nullptr) return Jump::no;
  const TrampolineFrame& kept = frame_at(frame.sp + kReturnAddressBytes);
  take_whole_frame(frame, kept, is_switched(*body));
  frame.ip = slot_of(*body, kept).address;
  return Jump::arriving;
}

// On the way out of the agent, with the registers and the frame that uprobe_jump_entry has made.
Jump leave_end(const ProcessBlock& block, SignalFrame& frame) {
  const bool is_left = is_in(frame.ip, uprobe_jump_leaves, uprobe_jump_left);
  const JumpEntry entry = jump_entry_of(frame, is_left && frame.ip != as_word(uprobe_jump_leaves));
  const BodyHead* body = body_around(block, entry.return_address);
  if (body == nullptr) return Jump::no;
  take_back(frame, entry, is_left);
  take_whole_frame(frame, *entry.kept, is_switched(*body));
  frame.ip = copy_of(*body, *entry.kept);
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
  if (thunk != Jump::no) return thunk;
  const Jump switched = leave_switch(block, frame);
  return switched != Jump::no ? switched : leave_padding(block, frame);
}

u64 trampoline_fixup(const ProcessBlock& block, u64 ip) {
  const BodyHead* body = body_around(block, ip);
  if (body == nullptr) return 0;
  const u64 start = as_word(body), at = ip - start;
  if (body->unclaim != 0 && at > body->claimed && at < body->recorded) return start + body->unclaim;
  for (const shared::BodyFault& fault : body->faults)
    if (fault.insn != 0 && start + fault.insn == ip) return start + fault.fixup;
  return 0;
}

}  // namespace uprobe::agent
