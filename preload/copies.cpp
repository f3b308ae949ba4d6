// SPDX-License-Identifier: MIT
// Threads inside a displaced copy: their places in the original program, and hits that must not count twice.
#include "preload/copies.h"

#include "preload/returns.h"
#include "preload/slots.h"
#include "preload/system_call.h"
#include "preload/thread.h"
#include "preload/unwinders.h"

namespace uprobe::agent {
namespace {

using shared::Repeat;

// The farthest that longjmp moves a stack pointer up; another stack is farther away or below.
constexpr u64 kSameStack = u64{8} << 20;

const Point* point_with_copy_at(const ProcessBlock& block, u64 address) {
  const Slot slot = slot_around(block, address);
  return slot.head != nullptr && address >= slot.point->copy ? slot.point : nullptr;
}

const shared::Mark* table_of(const Point& point) {
  return reinterpret_cast<const shared::Mark*>(shared::marks_of(point));
}

// The first mark is at the copy's beginning.
const shared::Mark& mark_covering(const Point& point, u64 offset) {
  const shared::Mark* marks = table_of(point);
  u32 mark = 0;
  for (u32 i = 1; i < point.mark_count && offset >= marks[i].offset; ++i) mark = i;
  return marks[mark];
}

// Whether the probed instruction is still to come. At the target of a branch back to it (loop) it has been executed.
bool is_in_front(const Point& point, u64 offset) {
  const shared::Mark* marks = table_of(point);
  for (u32 i = 1; i < point.mark_count && offset >= marks[i].offset; ++i)
    if (marks[i].place != 0) return false;
  return true;
}

u64 thread_key() { return thread_pointer() | 1; }

bool release(ProcessBlock& block, Repeat& repeat, u64 whose) {
  if (!__atomic_compare_exchange_n(&repeat.thread, &whose, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) return false;
  __atomic_fetch_sub(&block.repeat_count, 1, __ATOMIC_RELAXED);
  return true;
}

// Forgets the re-execution that is expected when the handler with this frame returns. False: none, or not at the frame's
// address.
bool forget_repeat(ProcessBlock& block, const SignalFrame& frame) {
  if (__atomic_load_n(&block.repeat_count, __ATOMIC_RELAXED) == 0) return false;
  const u64 thread = thread_key();
  bool found = false;
  for (Repeat& repeat : block.repeats)
    if (__atomic_load_n(&repeat.thread, __ATOMIC_ACQUIRE) == thread && repeat.frame == as_word(&frame)) {
      found = found || repeat.address == frame.ip;
      release(block, repeat, thread);
    }
  return found;
}

// The place in a copy for an address inside a jump; any other address itself.
u64 place_in_copy(const ProcessBlock& block, u64 ip) {
  for (u32 inside = 1; inside < shared::kJumpBytes; ++inside) {
    const Point* point = find_point(block, ip - inside);
    if (point == nullptr || point->jump_bytes <= inside) continue;
    if (point->state != static_cast<u32>(shared::PointState::armed)) return ip;
    const shared::Mark* marks = table_of(*point);
    for (u32 i = 0; i < point->mark_count; ++i)
      if (marks[i].place == static_cast<i32>(inside) && marks[i].pushed == 0) return point->copy + marks[i].offset;
  }
  return ip;
}

// Whether the original place lies in the middle of a jump. A prefix window's jump covers the place that the window leads to.
bool is_inside(const Point& point, i32 place) {
  return point.prefix_window != 0 ? place == 0 : place > 0 && place < point.jump_bytes;
}

// Whether a thread moved to the original place would be lost there, or hit again, because the agent will not see the handler
// return.
bool is_no_way_back(const ProcessBlock& block, const Point& point, const shared::Mark& mark, SignalFrame& frame,
                    Arrival arrival) {
  const bool inside = is_inside(point, mark.place);
  const bool again = mark.place == 0 && point.jump_bytes != 0 && arrival == Arrival::signal;
  return (inside || again) && !sees_return(block, frame_around(frame).restorer);
}

}  // namespace

bool in_agent(const ProcessBlock& block, u64 address) {
  return address - block.agent_text < block.agent_text_end - block.agent_text &&
         address != as_word(uprobe_return_copy) && address != as_word(uprobe_open_call_end) && !in_iterate(address);
}

bool is_under_way(const ProcessBlock& block, u64 ip) {
  const Point* point = point_with_copy_at(block, ip);
  if (point == nullptr) return false;
  const i32 place = mark_covering(*point, ip - point->copy).place;
  const i32 end = point->code_bytes + (shared::is_prefix_window(*point) ? 1 : 0);  // after it the hit is still to come
  return place >= 0 && place < end;
}

// If the table is full the hit counts twice.
void expect_repeat(ProcessBlock& block, const SignalFrame& frame) {
  for (Repeat& repeat : block.repeats) {
    u64 expected = 0;
    if (!__atomic_compare_exchange_n(&repeat.thread, &expected, thread_key(), false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
      continue;
    repeat.address = frame.ip;
    repeat.frame = 0;
    repeat.state = digest(frame);
    __atomic_fetch_add(&block.repeat_count, 1, __ATOMIC_RELAXED);
    return;
  }
}

Moved move_to_original(ProcessBlock& block, SignalFrame& frame, Arrival arrival) {
  if (leave_return_copy(frame)) return Moved::to_original;
  const Point* point = point_with_copy_at(block, frame.ip);
  if (point == nullptr) return Moved::no;
  const u64 offset = frame.ip - point->copy;
  const shared::Mark& mark = mark_covering(*point, offset);
  const bool in_front = is_in_front(*point, offset);
  // A jump leads to the beginning of a prefix window's copy: a step there is not the program's.
  if (arrival == Arrival::step && in_front && (offset != 0 || shared::is_prefix_window(*point))) return Moved::within;
  if (is_no_way_back(block, *point, mark, frame, arrival)) return arrival == Arrival::step ? Moved::within : Moved::no;
  frame.ip = point->address + static_cast<u64>(i64{mark.place});
  frame.sp += mark.pushed;
  if (mark.after_call != 0) hide_call_of_copy(frame);
  if (arrival == Arrival::signal && in_front) expect_repeat(block, frame);
  return Moved::to_original;
}

// Frames of running handlers never share a place: an earlier frame at the same place was left by longjmp.
void expect_after(ProcessBlock& block, const SignalFrame& frame, bool shown) {
  if (__atomic_load_n(&block.repeat_count, __ATOMIC_RELAXED) == 0) return;
  const u64 thread = thread_key(), at = as_word(&frame);
  for (Repeat& repeat : block.repeats) {
    if (__atomic_load_n(&repeat.thread, __ATOMIC_ACQUIRE) != thread) continue;
    if (repeat.frame == 0 && repeat.address == frame.ip)
      repeat.frame = shown ? at : frame.sp | 1;
    else if ((repeat.frame & 1) == 0 && repeat.frame + sizeof frame > at && repeat.frame < at + sizeof frame)
      release(block, repeat, thread);
  }
}

// Internal points at system calls make or refuse the call at each arrival; so do those before calls, where no probe would be hit a second
// time.
u64 place_to_go_on(ProcessBlock& block, const SignalFrame& frame) {
  const Point* point = find_point(block, frame.ip);
  const bool repeated = forget_repeat(block, frame) && point != nullptr;
  const bool at_call = point != nullptr && point->role == static_cast<u32>(shared::PointRole::system_call);
  const bool is_before = point != nullptr && shared::is_before_call(static_cast<shared::PointRole>(point->role));
  if (repeated && !at_call && (!is_before || point->consumer != 0)) return point->copy;
  if (repeated && at_call) expect_repeat(block, frame);  // the handler may have changed the registers
  return point == nullptr || point->prefix_window != 0 ? place_in_copy(block, frame.ip) : frame.ip;
}

void not_gone_on(ProcessBlock& block, SignalFrame& frame, u64 ip) {
  const Point* point = find_point(block, ip);
  const bool repeats = point != nullptr && frame.ip != ip && frame.ip == point->copy;
  frame.ip = ip;
  if (repeats) expect_repeat(block, frame);
  expect_after(block, frame, true);
}

void expect_nothing(ProcessBlock& block) {
  const u64 thread = thread_key();
  for (Repeat& repeat : block.repeats)
    if (__atomic_load_n(&repeat.thread, __ATOMIC_ACQUIRE) == thread) release(block, repeat, thread);
}

void expect_nothing_of_others(ProcessBlock& block) {
  const u64 thread = thread_key();
  for (Repeat& repeat : block.repeats) {
    const u64 whose = __atomic_load_n(&repeat.thread, __ATOMIC_ACQUIRE);
    if (whose != 0 && whose != thread) release(block, repeat, whose);
  }
}

// If the agent does not see a handler return: one that was left by longjmp never comes back to its instruction, and a thread
// seen above its stack pointer shows that.
bool is_repeat(ProcessBlock& block, const Point& point, const SignalFrame& frame) {
  if (__atomic_load_n(&block.repeat_count, __ATOMIC_RELAXED) == 0) return false;
  const u64 thread = thread_key(), state = digest(frame);
  for (Repeat& repeat : block.repeats) {
    if (__atomic_load_n(&repeat.thread, __ATOMIC_ACQUIRE) != thread) continue;
    const bool guessed = (repeat.frame & 1) != 0;
    if (repeat.frame != 0 && !guessed) continue;
    if (repeat.address == point.address && repeat.state == state && release(block, repeat, thread)) return true;
    const u64 sp = repeat.frame & ~u64{1};
    if (guessed && frame.sp > sp && frame.sp - sp < kSameStack) release(block, repeat, thread);
  }
  return false;
}

}  // namespace uprobe::agent
