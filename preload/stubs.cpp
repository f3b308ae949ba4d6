// SPDX-License-Identifier: MIT
// Functions that return through a stub. A hit at their entry finds the stub of the pair (copy, return address), or fills in an
// unused one, and replaces the return address by it; the stub records the return and leads on to the return address.
//
// There is no list of pending returns: a stub itself says where it leads, so frames may be left by longjmp or an exception,
// stacks moved, copied or freed, and one return address used twice. A word on the stack counts as a return address only if a
// call stands before it, or if it is one of the few known ones; and only if its caller has unwind information: code without it
// may find its callers by means other than an unwinder.
#include "preload/stubs.h"

#include "arch/entry/cpu.h"
#include "arch/entry/stub_frame.h"
#include "arch/shared/call_bytes.h"
#include "engine/shared/return_stub.h"
#include "preload/callers.h"
#include "preload/system_call.h"

namespace uprobe::agent {
namespace {

using shared::Consumer;
using shared::ConsumerKind;
using shared::kReturnStubs;
using shared::kStubReturns;
using shared::kStubUnit;
using shared::ReturnSlot;

extern "C" {
// stub.S of arch/entry
extern const u8 uprobe_return_entry[] __attribute__((visibility("hidden")));
extern const u8 uprobe_return_done[] __attribute__((visibility("hidden")));
extern const u8 uprobe_return_leaves[] __attribute__((visibility("hidden")));
extern const u8 uprobe_return_left[] __attribute__((visibility("hidden")));
extern const u8 uprobe_return_waits[] __attribute__((visibility("hidden")));
}

constexpr u32 kHashSize = u32{1} << shared::kStubHashBits;
static_assert(kHashSize >= 2 * kReturnStubs);

// The process's own, copied by fork together with the stacks that lead here.
struct Table {
  u32 last;   // number of the last stub used
  u32 spare;  // a stub that a lost race has left, for the next pair
  u32 hash[kHashSize];
  u16 used[shared::kPointsOfABudget];
} table;

u64 stub_at(u32 number) { return as_word(uprobe_return_stubs) + u64{number} * kStubUnit; }

u32 number_of(u64 address) { return static_cast<u32>((address - stub_at(0)) / kStubUnit); }

u32 offset_in_stub(u64 address) { return static_cast<u32>((address - stub_at(0)) % kStubUnit); }

u32 place_in_hash(u64 body, u64 address) {
  return shared::hash_slot(address ^ (body << 32 | body >> 32), shared::kStubHashBits);
}

bool is_of(u32 number, u64 body, u64 address) {
  const ReturnSlot& slot = uprobe_return_slots[number];
  return slot.return_address == address && slot.body == body;
}

// The number of the pair's stub, or 0 and the place in the hash where it belongs.
u32 find(u64 body, u64 address, u32& place) {
  place = place_in_hash(body, address);
  for (u32 steps = 0; steps < kHashSize; ++steps, place = (place + 1) % kHashSize) {
    const u32 number = __atomic_load_n(&table.hash[place], __ATOMIC_ACQUIRE);
    if (number == 0 || is_of(number, body, address)) return number;
  }
  return 0;
}

u32 free_number() {
  const u32 spare = __atomic_exchange_n(&table.spare, 0, __ATOMIC_RELAXED);
  if (spare != 0) return spare;
  if (__atomic_load_n(&table.last, __ATOMIC_RELAXED) >= kReturnStubs - 1) return 0;
  const u32 number = __atomic_add_fetch(&table.last, 1, __ATOMIC_RELAXED);
  return number < kReturnStubs ? number : 0;
}

// The program's own bytes in [address - sizeof bytes, address), without the tool's changes. False: unreadable.
using shared::kLongestCall;
bool original_before(const ProcessBlock& block, u64 address, u8 (&bytes)[kLongestCall]) {
  for (u32 i = 0; i < kLongestCall; ++i) {
    u64 value = 0;
    if (!uprobe_peek1(address - kLongestCall + i, &value)) return false;
    bytes[i] = static_cast<u8>(value);
  }
  for (u32 back = 1; back < kLongestCall + shared::kJumpBytes; ++back) {
    const Point* point = find_point(block, address - back);
    if (point == nullptr || point->state == static_cast<u32>(shared::PointState::watched)) continue;
    const shared::Undo& undo = undo_of(block, *point);
    for (u32 i = 0; i < undo.length && i < back; ++i)
      if (back - i <= kLongestCall) bytes[kLongestCall - (back - i)] = undo.original[i];
  }
  return true;
}

bool is_after_call(const ProcessBlock& block, u64 address) {
  u8 bytes[kLongestCall];
  return original_before(block, address, bytes) && shared::ends_with_call(bytes);
}

// The return addresses of signal handlers (the call itself may be a point), and of functions of makecontext.
bool is_known_return_path(u64 address) {
  u64 code = 0;
  return uprobe_peek8(address, &code) && is_known_return(code);
}

// The contents of a new stub. A chain is short and has no point twice: tail calls in a loop would make an endless one.
bool describe(const ProcessBlock& block, const Point& point, u64 address, ReturnSlot& slot) {
  slot = {address, point.copy, address, index_of(block, point), 0};
  if (!is_in_stub(address))
    return (is_after_call(block, address) && may_return_by_stub(block, address)) || is_known_return_path(address);
  while (is_in_stub(address)) {
    const ReturnSlot& below = uprobe_return_slots[number_of(address)];
    if (offset_in_stub(address) != kStubReturns || below.body == 0) return false;
    if (below.point == slot.point || ++slot.depth >= shared::kMostChained) return false;
    slot.root = below.root;
    address = below.return_address;
  }
  return true;
}

// Threads that pay at once may take slightly more than the budget.
bool pay(const ReturnSlot& slot) {
  u16& used = table.used[slot.point % shared::kPointsOfABudget];
  const u32 cost = slot.depth == 0 ? 1 : shared::kChainedCost;
  if (__atomic_load_n(&used, __ATOMIC_RELAXED) + cost > shared::kStubBudget) return false;
  __atomic_fetch_add(&used, static_cast<u16>(cost), __ATOMIC_RELAXED);
  return true;
}

// A thread that comes second to a place in the hash checks whether the same pair is there, and else goes on to the next place.
u32 publish(u32 number, u32 place) {
  const ReturnSlot& slot = uprobe_return_slots[number];
  for (u32 steps = 0; steps < kHashSize; ++steps, place = (place + 1) % kHashSize) {
    u32 other = 0;
    if (__atomic_compare_exchange_n(&table.hash[place], &other, number, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      return number;
    if (!is_of(other, slot.body, slot.return_address)) continue;
    __atomic_exchange_n(&table.spare, number, __ATOMIC_RELAXED);
    return other;
  }
  return 0;
}

u32 make(const ProcessBlock& block, const Point& point, u64 address, u32 place) {
  ReturnSlot slot;
  if (!describe(block, point, address, slot) || !pay(slot)) return 0;
  const u32 number = free_number();
  if (number == 0) return 0;
  uprobe_return_slots[number] = slot;
  return publish(number, place);
}

bool wants_stub(const Consumer& consumer) { return consumer.kind == static_cast<u8>(ConsumerKind::stub); }

// Whether consumers of the point want its return from a stub now; if `is_missed`, counts the return as missed for each.
bool for_stub_consumers(const ProcessBlock& block, const Point& point, bool is_missed) {
  bool found = false;
  each_consumer(block, point, [&](const Consumer& consumer) {
    AreaHeader* area = wants_stub(consumer) ? session_area(block, consumer.session) : nullptr;
    if (area == nullptr || !is_recording(*area) || consumer.event >= area->event_count) return;
    if (!is_recording(at_offset<shared::Event>(area, area->event_offset)[consumer.event])) return;
    found = true;
    if (is_missed) count_missed(area, consumer.event);
  });
  return found;
}

// Before the first stub is used: the tool then leaves the data that unwinders need.
void note_stubs(ProcessBlock& block) {
  if ((__atomic_load_n(&block.flags, __ATOMIC_RELAXED) & shared::kBlockHasStubs) == 0)
    __atomic_fetch_or(&block.flags, shared::kBlockHasStubs, __ATOMIC_SEQ_CST);
}

bool replace(ProcessBlock& block, const Point& point, u64 sp) {
  u64 address = 0;
  if (!uprobe_peek8(sp, &address)) return false;
  u32 place = 0;
  u32 number = find(point.copy, address, place);
  if (number == 0) number = make(block, point, address, place);
  note_stubs(block);
  return number != 0 && uprobe_poke8(sp, stub_at(number) + kStubReturns);
}

}  // namespace

void lead_through_stub(ProcessBlock& block, const Point& point, u64 sp, bool may_fault) {
  if (!for_stub_consumers(block, point, false)) return;
  // Under a shadow stack a function can only return to the address that the call has left there.
  if (may_fault && block.no_stubs == 0 && shadow_stack() == 0 && replace(block, point, sp)) return;
  for_stub_consumers(block, point, true);
}

bool is_under_way(const ProcessBlock& block, const Point& point, u64 sp) {
  u64 address = 0;
  if (!uprobe_peek8(sp, &address)) return false;
  for (u32 depth = 0; is_in_stub(address) && depth < shared::kMostChained; ++depth) {
    const ReturnSlot& slot = uprobe_return_slots[number_of(address)];
    if (slot.point == index_of(block, point)) return true;
    address = slot.return_address;
  }
  return false;
}

bool is_end_of_return(u64 ip) { return ip == as_word(uprobe_return_waits); }

bool leave_stub(SignalFrame& frame) {
  const bool is_whole = is_in(frame.ip, uprobe_return_done, uprobe_return_leaves) || is_end_of_return(frame.ip);
  if (!is_whole && !is_in(frame.ip, uprobe_return_leaves, uprobe_return_left)) return false;
  if (is_whole) take_registers(frame, *reinterpret_cast<const ReturnFrame*>(frame.sp));
  frame.ip = *reinterpret_cast<const u64*>(frame.sp - 8);
  return true;
}

bool finish_return(ProcessBlock& block, SignalFrame& frame, bool may_fault) {
  const bool is_entry = frame.ip == as_word(uprobe_return_entry);
  if (!is_entry && (!is_in_stub(frame.ip) || offset_in_stub(frame.ip) < kStubReturns)) return false;
  const u32 number = is_entry ? static_cast<u32>(*reinterpret_cast<const u64*>(frame.sp)) : number_of(frame.ip);
  frame.sp += depth_in_stub(is_entry ? kStubUnit : offset_in_stub(frame.ip));
  const ReturnSlot& slot = uprobe_return_slots[number];
  Registers registers = registers_of(frame, slot.root);
  Hit hit{&block, &point_of(block, slot), &registers, thread_id(block, may_fault), may_fault, false, false,
          0,      frame.fpstate};
  handle_return(hit, ConsumerKind::stub, slot.root);
  frame.ip = slot.return_address;
  return true;
}

}  // namespace uprobe::agent
