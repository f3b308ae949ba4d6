// Threads that are inside a displaced copy: where they are in the original program, and hits that must not count twice.
#include "preload/copies.h"

#include "preload/returns.h"
#include "preload/system_call.h"
#include "preload/thread.h"

namespace uprobe::agent {
namespace {

using shared::Repeat;

// The farthest that a stack pointer moves up when frames are left by longjmp; another stack is farther away or below.
constexpr u64 kSameStack = u64{8} << 20;

bool in_islands(const ProcessBlock& block, u64 address) {
  for (u32 i = 0; i < block.island_count && i < shared::kMaxIslands; ++i)
    if (address - block.islands[i].base < block.islands[i].bytes) return true;
  return false;
}

const Point* point_with_copy_at(const ProcessBlock& block, u64 address) {
  if (!in_islands(block, address)) return nullptr;
  const Point* points = at_offset<Point>(&block, block.point_offset);
  for (u32 i = 0; i < block.point_count; ++i)
    if (address - points[i].copy < points[i].copy_bytes) return &points[i];
  return nullptr;
}

// The first mark is at the copy's beginning.
const shared::Mark& mark_covering(const Point& point, u64 offset) {
  const auto* marks = reinterpret_cast<const shared::Mark*>(shared::marks_of(point));
  u32 mark = 0;
  for (u32 i = 1; i < point.mark_count && offset >= marks[i].offset; ++i) mark = i;
  return marks[mark];
}

// All that the instruction could see of the thread.
u64 digest(const SignalFrame& f) {
  constexpr u64 kVisibleFlags = 0x40cd5;  // CF PF AF ZF SF DF OF, AC
  u64 state = f.flags & kVisibleFlags;
  for (const u64* word = &f.r8; word <= &f.sp; ++word) {
    state = (state ^ *word) * 0x9e3779b97f4a7c15ull;
    state ^= state >> 29;
  }
  return state;
}

u64 thread_key() { return thread_pointer() | 1; }

bool release(ProcessBlock& block, Repeat& repeat, u64 whose) {
  if (!__atomic_compare_exchange_n(&repeat.thread, &whose, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) return false;
  __atomic_fetch_sub(&block.repeat_count, 1, __ATOMIC_RELAXED);
  return true;
}

}  // namespace

bool in_agent(const ProcessBlock& block, u64 address) {
  return address - block.agent_text < block.agent_text_end - block.agent_text &&
         address != as_word(uprobe_return_copy) && address != as_word(uprobe_open_call_end);
}

bool is_under_way(const ProcessBlock& block, u64 ip) {
  const Point* point = point_with_copy_at(block, ip);
  if (point == nullptr) return false;
  const i32 place = mark_covering(*point, ip - point->copy).place;
  return place >= 0 && place < point->code_bytes;
}

// No place left: the hit counts twice.
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
  const bool in_front = mark.place == 0;
  if (arrival == Arrival::step && in_front && offset != 0) return Moved::within;
  frame.ip = point->address + static_cast<u64>(i64{mark.place});
  frame.sp += mark.pushed;
  // The processor left the copy's address in rcx (SDM vol. 2, SYSCALL).
  if (mark.behind_call != 0) frame.cx = frame.ip;
  if (arrival == Arrival::signal && in_front) expect_repeat(block, frame);
  return Moved::to_original;
}

// Two frames of handlers that run are never at one place: one that was there before has been left by longjmp.
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

void returned_to(ProcessBlock& block, const SignalFrame& frame) {
  if (__atomic_load_n(&block.repeat_count, __ATOMIC_RELAXED) == 0) return;
  const u64 thread = thread_key();
  for (Repeat& repeat : block.repeats)
    if (__atomic_load_n(&repeat.thread, __ATOMIC_ACQUIRE) == thread && repeat.frame == as_word(&frame)) {
      repeat.frame = 0;
      repeat.state = digest(frame);  // the handler may have changed the registers
      if (repeat.address != frame.ip) release(block, repeat, thread);
    }
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

// Where nobody says that a handler has returned: one that was left by longjmp will not come back to its instruction, and a
// thread seen above it says so.
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
