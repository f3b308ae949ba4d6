// SPDX-License-Identifier: MIT
// See actions.h. The condition of a trigger is tested on a payload of the hit's own, on the agent's stack, not on a record in a ring:
// so it holds whether or not a ring has room, and no other process can change the payload before the test.
#include "preload/actions.h"

#include "arch/entry/cpu.h"
#include "preload/ring.h"
#include "preload/system_call.h"

namespace uprobe::agent {
namespace {

using shared::Trigger;
using shared::TriggerKind;

u32 name_of(const shared::Consumer& consumer) { return u32{consumer.session} << 16 | consumer.event; }
bool is_decided(const Changes& changes, const shared::Consumer& consumer) {
  for (u32 i = 0; i < changes.decided_count; ++i)
    if (changes.decided[i] == name_of(consumer)) return true;
  return false;
}

constexpr u64 kSecond = 1'000'000'000;
constexpr long kInterrupted = -4;  // EINTR

// The address of the thread's errno; 0: it is not known, or cannot be read.
u64 errno_address(const Hit& hit, const Trigger& trigger) {
  const Reader reader{hit.may_fault};
  u64 offset = trigger.errno_at, bias = 0, value = 0;
  if (!bias_of_object(*hit.block, reader, trigger.libc, bias)) return 0;
  if (trigger.errno_place == static_cast<u32>(shared::ErrnoPlace::word) &&
      (!reader.load8(bias + trigger.errno_at, offset) || static_cast<i64>(offset) >= 0))
    return 0;  // the linker has not filled the word: what it writes there lies before the thread pointer
  const u64 thread = thread_pointer(), address = thread + offset;
  return thread != 0 && reader.copy(reinterpret_cast<u8*>(&value), address, sizeof(i32)) == sizeof(i32) ? address : 0;
}

// Where an overridden function returns to, and the thread's errno if that is set; the code of a callback's gate.
struct Way {
  u64 return_to, errno_address, gate;
};

// Under a shadow stack the processor compares the return address at the return, which the function would not reach.
bool find_way(const Hit& hit, const Trigger& trigger, Way& way) {
  const Reader reader{hit.may_fault};
  if (shadow_stack() != 0 || !reader.load8((*hit.registers)[shared::Reg::sp], way.return_to)) return false;
  if (trigger.errno_place == static_cast<u32>(shared::ErrnoPlace::none)) return true;
  way.errno_address = errno_address(hit, trigger);
  return way.errno_address != 0;
}

// A hit has one callback: that of the newest definition.
bool find_gate(const Hit& hit, const Trigger& trigger, Way& way) {
  const Reader reader{hit.may_fault};
  u64 cookie = 0;
  if (changes_of(hit)->gate != 0 || shadow_stack() != 0 || trigger.errno_at == 0) return false;
  if (!reader.load8(trigger.value + offsetof(shared::CallbackGate, cookie), cookie) || cookie != trigger.errno_at)
    return false;
  if (!reader.load8(trigger.value + offsetof(shared::CallbackGate, entry), way.gate) || way.gate == 0) return false;
  return reader.load8((*hit.registers)[shared::Reg::sp], way.return_to);
}

// At the entry of a function its caller is found on the stack; at its return the registers are the caller's already.
void add_callback(const RecordBuilder& builder, const Trigger& trigger, const Way& way, Changes& changes) {
  const Registers& registers = *builder.hit->registers;
  const bool at_return = (builder.event->flags & shared::kEventReturns) != 0;
  changes.gate = way.gate, changes.not_called = &builder.counts->not_changed;
  changes.callback.mark = shared::callback_mark(trigger.target, trigger.errno_at);
  changes.callback.caller_ip = at_return ? registers[shared::Reg::ip] : way.return_to;
  changes.callback.caller_sp = registers[shared::Reg::sp] + (at_return ? 0 : sizeof(u64));
  for (u32 i = 0; i < sizeof shared::kKeptRegisters; ++i)
    changes.callback.kept[i] = registers[shared::kKeptRegisters[i]];
}

// System calls are not made where a seccomp filter may be in force.
bool is_possible(const Hit& hit, const Trigger& trigger, Way& way) {
  switch (static_cast<TriggerKind>(trigger.kind)) {
    case TriggerKind::override_return:
      return find_way(hit, trigger, way);
    case TriggerKind::set_register:
      return trigger.target < Changes::kSettable;
    case TriggerKind::call_back:
      return find_gate(hit, trigger, way);
    default:
      return (hit.block->flags & shared::kBlockFiltered) == 0;
  }
}

void add_change(const Trigger& trigger, const Way& way, Changes& changes) {
  switch (static_cast<TriggerKind>(trigger.kind)) {
    case TriggerKind::override_return:
      changes.overrides = true, changes.result = trigger.value, changes.return_to = way.return_to;
      changes.errno_address = way.errno_address, changes.error_number = trigger.error_number;
      break;
    case TriggerKind::set_register:
      changes.set_registers |= 1u << trigger.target, changes.values[trigger.target] = trigger.value;
      break;
    case TriggerKind::delay:
      changes.delay = trigger.value < shared::kMostDelay ? trigger.value : shared::kMostDelay;
      break;
    default:
      changes.signal = static_cast<u32>(trigger.value);
  }
}

u64& count_of(EventCounts& counts, const Trigger& trigger) {
  switch (static_cast<TriggerKind>(trigger.kind)) {
    case TriggerKind::override_return:
      return counts.overridden;
    case TriggerKind::set_register:
    case TriggerKind::call_back:
      return counts.changed;
    case TriggerKind::delay:
      return counts.delayed;
    default:
      return counts.signalled;
  }
}

// A trigger of the event whose condition holds. What cannot be done takes none of its acts.
bool decide_one(const RecordBuilder& builder, const Trigger& trigger, u64& left) {
  Changes& changes = *changes_of(*builder.hit);
  const bool is_allowed = __atomic_load_n(&live_of(builder.area).changes_allowed, __ATOMIC_RELAXED) != 0 &&
                          changes.decided_count < Changes::kMostDecided;
  if (__atomic_load_n(&left, __ATOMIC_RELAXED) == 0) return false;
  Way way{0, 0, 0};
  if (!is_allowed || !is_possible(*builder.hit, trigger, way)) return count(builder.counts->not_changed), false;
  if (!take_one(left)) return false;
  if (trigger.kind == static_cast<u32>(TriggerKind::call_back))
    add_callback(builder, trigger, way, changes);
  else
    add_change(trigger, way, changes);
  count(count_of(*builder.counts, trigger));
  return true;
}

// Not inlined: it has the payload on the stack.
[[gnu::noinline]] bool decide_all(const RecordBuilder& builder) {
  u8 room[shared::kMaxPayload];
  Payload payload{room, sizeof room, 0, 0, false, sizeof room};
  const bool is_built = build_payload(*builder.hit, builder.area, *builder.event, payload) == Built::ok;
  const Triggers all = triggers_of(builder.area, *builder.event);
  bool acts = false;
  for (u32 i = 0; i < all.count; ++i) {
    const Trigger& trigger = all.first[i];
    if (!shared::changes_program(static_cast<TriggerKind>(trigger.kind))) continue;
    if (trigger.test_count != 0 && !is_built)
      count(builder.counts->not_changed);
    else if (holds(builder, payload, trigger) && decide_one(builder, trigger, all.left[i]))
      acts = true;
  }
  return acts;
}

// nanosleep writes what is left when a handler has run: the agent's, which has deferred the application's. The thread is in a
// breakpoint's handler, on the agent's stack, and a call that lasts there delays it and nothing else.
void sleep_for(u64 nanoseconds) {
  u64 left[2] = {nanoseconds / kSecond, nanoseconds % kSecond};
  while (system_call(kSysNanosleep, as_word(left), as_word(left)) == kInterrupted) {
  }
}

// As raise(3). A handler of the application's is deferred until the thread leaves the agent, and finds the registers of the frame.
void send_to_thread(u32 signal) {
  const long pid = system_call(kSysGetpid), tid = system_call(kSysGettid);
  system_call(kSysTgkill, static_cast<u64>(pid), static_cast<u64>(tid), signal);
}

// The gate keeps the extended state, unwinds, and calls functions of the program: without room it would end in a fault.
bool has_room(u64 from) {
  constexpr u64 kPage = 4096;
  u64 word = 0;
  for (u64 below = 0; below <= shared::kCallbackRoom; below += kPage)
    if (from < below || !uprobe_peek8((from - below) & ~u64{7}, &word)) return false;
  return true;
}

}  // namespace

void decide_change(const Hit& hit, AreaHeader* area, const shared::Consumer& consumer) {
  if (!is_recording(*area) || consumer.event >= area->event_count) return;
  const Event& event = at_offset<Event>(area, area->event_offset)[consumer.event];
  if ((event.flags & shared::kEventActs) == 0 || !is_recording(event)) return;
  const RecordBuilder builder{
      .hit = &hit, .area = area, .event = &event, .counts = &counts_of(area, consumer.event), .cpu = current_cpu()};
  Changes& changes = *changes_of(hit);
  if (decide_all(builder)) changes.decided[changes.decided_count++] = name_of(consumer);
}

void prepare_change(const Hit& hit, AreaHeader* area, const shared::Consumer& consumer) {
  if (consumer.kind != static_cast<u8>(shared::ConsumerKind::entry)) decide_change(hit, area, consumer);
  changes_of(hit)->is_of_record = is_decided(*changes_of(hit), consumer);
}

void call_back(const Changes& changes, u64 resume, SignalFrame& frame) {
  if (changes.gate == 0) return;
  shared::CallbackEntry entry = changes.callback;
  entry.resume = resume;
  constexpr u32 kWords = sizeof entry / sizeof(u64);
  u64 words[kWords];
  copy_words(words, &entry, sizeof entry);
  const u64 at = frame.sp - shared::kRedZone - sizeof entry;
  if (!has_room(at)) return count(*changes.not_called);
  for (u32 i = 0; i < kWords; ++i)
    if (!uprobe_poke8(at + i * sizeof(u64), words[i])) return count(*changes.not_called);
  frame.sp = at, frame.ip = changes.gate;
}

bool carry_out(const Changes& changes, SignalFrame& frame) {
  if (changes.decided_count == 0) return false;
  for (u32 i = 0; i < Changes::kSettable; ++i)
    if ((changes.set_registers >> i & 1) != 0) set_register(frame, static_cast<shared::Reg>(i), changes.values[i]);
  if (changes.overrides) return_from_function(frame, changes.return_to, changes.result);
  if (changes.errno_address != 0) uprobe_poke4(changes.errno_address, changes.error_number);
  if (changes.delay != 0) sleep_for(changes.delay);
  if (changes.signal != 0) send_to_thread(changes.signal);
  return changes.overrides;
}

}  // namespace uprobe::agent
