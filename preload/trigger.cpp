// SPDX-License-Identifier: MIT
// Triggers at a hit: engine/shared/trigger.h. Triggers that test the record, or act after it, run on a record that was built in
// a claimed ring: an rseq section could restart, and would turn a switch twice.
#include "preload/ring.h"

namespace uprobe::agent {

using shared::Trigger;
using shared::TriggerKind;

UPROBE_IN_SECTION bool take_one(u64& left) {
  u64 now = __atomic_load_n(&left, __ATOMIC_RELAXED);
  do {
    if (now == 0) return false;
    if (now == shared::kUnlimited) return true;
  } while (!__atomic_compare_exchange_n(&left, &now, now - 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return true;
}

// A missing value fulfils no condition.
UPROBE_IN_SECTION bool holds(const RecordBuilder& builder, const Payload& payload, const Trigger& trigger) {
  if (trigger.test_count == 0) return true;
  if ((payload.record_flags & shared::kRecordNoEntry) != 0) return false;
  const shared::Verdict verdict = verdict_of(builder, payload, trigger.first_test, trigger.test_count);
  if (verdict == shared::Verdict::unknown || verdict == shared::Verdict::later) count(builder.counts->unavailable);
  return verdict == shared::Verdict::pass;
}

namespace {

UPROBE_IN_SECTION u32* switch_of(AreaHeader* area, u32 number) {
  return number < area->switch_count ? at_offset<u32>(area, area->switch_offset) + number : nullptr;
}

UPROBE_IN_SECTION bool is_off(const u32* state) {
  return state != nullptr && __atomic_load_n(state, __ATOMIC_ACQUIRE) == shared::kSwitchOff;
}

// The tool looks each time it reads records, so that further hits until then ask for nothing more.
UPROBE_IN_SECTION void ask_for_snapshot(AreaHeader* area, u64& left) {
  if (take_one(left)) __atomic_fetch_add(&live_of(area).snapshots, 1, __ATOMIC_RELAXED);
}

// A switch that already has the wanted state is not turned, and costs no act.
UPROBE_IN_SECTION void act(AreaHeader* area, const Trigger& trigger, u64& left) {
  const auto kind = static_cast<TriggerKind>(trigger.kind);
  if (kind == TriggerKind::snapshot) return ask_for_snapshot(area, left);
  if (!shared::turns_switch(kind)) return;
  const bool of_event = kind == TriggerKind::enable_event || kind == TriggerKind::disable_event;
  u32* const state = of_event ? switch_of(area, trigger.target) : &live_of(area).tracing;
  const u32 wanted = shared::wanted_state(kind);
  u32 other = wanted == shared::kSwitchOn ? shared::kSwitchOff : shared::kSwitchOn;
  if (state == nullptr || __atomic_load_n(state, __ATOMIC_ACQUIRE) == wanted || !take_one(left)) return;
  const bool turned = __atomic_compare_exchange_n(state, &other, wanted, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
  const bool counts = __atomic_load_n(&left, __ATOMIC_RELAXED) != shared::kUnlimited;
  if (!turned && counts) __atomic_fetch_add(&left, 1, __ATOMIC_RELAXED);
}

}  // namespace

UPROBE_IN_SECTION Triggers triggers_of(AreaHeader* area, const Event& event) {
  const bool fits = u64{event.first_trigger} + event.trigger_count <= area->trigger_count;
  return {at_offset<Trigger>(area, area->trigger_offset) + event.first_trigger,
          at_offset<u64>(area, area->left_offset) + event.first_trigger, fits ? event.trigger_count : 0};
}

[[gnu::noinline]] bool begin_switched(RecordBuilder& builder) {
  AreaHeader* const area = builder.area;
  const u32* const own = switch_of(area, builder.event->switch_number);
  builder.looks = (builder.event->flags & shared::kEventLooksFirst) != 0;
  // As in the kernel, which builds a record outside the ring if there is a filter or the event is off, else in the ring at
  // once.
  const bool is_open = builder.event->test_count != 0 || is_off(own);
  builder.session = is_open ? SessionWas::open : is_off(&live_of(area).tracing) ? SessionWas::off : SessionWas::on;
  if (builder.looks) return true;
  // It follows: a hit that turns its own event on is not recorded, unless a trigger of the event tests the record.
  const bool comes_too_late = is_off(own);
  const Triggers all = triggers_of(area, *builder.event);
  for (u32 i = 0; i < all.count; ++i) act(area, all.first[i], all.left[i]);
  builder.is_off = comes_too_late || is_off(own) || is_off(&live_of(area).tracing);
  return !builder.is_off || builder.addends != nullptr;
}

[[gnu::noinline]] UPROBE_IN_SECTION Built act_on(RecordBuilder& builder, const Payload& payload) {
  AreaHeader* const area = builder.area;
  const Triggers all = triggers_of(area, *builder.event);
  for (u32 i = 0; i < all.count; ++i) {
    const auto kind = static_cast<TriggerKind>(all.first[i].kind);
    if (!shared::tells_others(kind) || !holds(builder, payload, all.first[i])) continue;
    if (shared::acts_after(kind))
      builder.post_trigger = i + 1;
    else
      act(area, all.first[i], all.left[i]);
  }
  const bool session_off =
      builder.session == SessionWas::open ? is_off(&live_of(area).tracing) : builder.session == SessionWas::off;
  return session_off || is_off(switch_of(area, builder.event->switch_number)) ? Built::disabled : Built::ok;
}

// Takes one from a count here: such an event is never built in a section.
[[gnu::noinline]] UPROBE_IN_SECTION bool wants_stack(const RecordBuilder& builder, const Payload& payload) {
  const Triggers all = triggers_of(builder.area, *builder.event);
  for (u32 i = 0; i < all.count; ++i) {
    const Trigger& trigger = all.first[i];
    if (static_cast<TriggerKind>(trigger.kind) != TriggerKind::stack) continue;
    if (holds(builder, payload, trigger)) return take_one(all.left[i]);
  }
  return false;
}

[[gnu::noinline]] void run_post_triggers(const RecordBuilder& builder) {
  const Triggers all = triggers_of(builder.area, *builder.event);
  if (builder.post_trigger <= all.count)
    act(builder.area, all.first[builder.post_trigger - 1], all.left[builder.post_trigger - 1]);
}

}  // namespace uprobe::agent
