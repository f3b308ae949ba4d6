// SPDX-License-Identifier: MIT
// A record: stamped, built in place at the end of a ring, published by one store.
//
// CPU rings come first (ring_rseq.cpp): a hit that is abandoned in the middle leaves nothing there. For a thread without rseq,
// or a record that cannot be built in a section that restarts at each fault and signal, a ring is claimed (ring_claim.cpp); so for
// one that finds its CPU's ring full: a burst then has the room of all rings. Both build by the same function.
#include "arch/entry/cpu.h"
#include "preload/actions.h"
#include "preload/call_sums.h"
#include "preload/ring.h"
#include "preload/stack_walk.h"
#include "preload/thinning.h"

namespace uprobe::agent {
namespace {

// A hit that finds its ring full still counts in histograms: it is built in the ring's scratch, with its strings cut to what
// fits there. False: the ring has none.
UPROBE_IN_SECTION bool move_aside(const RecordBuilder& builder, Payload& payload) {
  const u64 at = builder.area->scratch_offset + u64{builder.index} * shared::kScratchBytes;
  if (builder.addends == nullptr || builder.area->scratch_offset == 0 ||
      at + shared::kScratchBytes > builder.area->data_offset)
    return false;
  payload.at = at_offset<u8>(builder.area, at), payload.limit = payload.most = shared::kMaxPayload,
  payload.record_flags = 0;
  return true;
}

// Adds the stack after the payload. `room` is the size of the room for the payload and the stack.
[[gnu::noinline]] UPROBE_IN_SECTION Built add_stack(const RecordBuilder& builder, const Payload& payload, u64 room,
                                                    u32& bytes) {
  const u64 at = (payload.used + u64{7}) & ~u64{7};
  const u32 copy_limit = shared::stack_copy_limit(builder.area->ring_bytes);
  if (at + shared::kMaxStack - shared::kMaxStackCopy + copy_limit > room) return Built::no_room;
  bytes = wants_stack(builder, payload) ? record_stack(*builder.hit, *builder.event, payload.at + at, copy_limit) : 0;
  return Built::ok;
}

}  // namespace

UPROBE_IN_SECTION Built build_record(RecordBuilder& builder) {
  constexpr u32 kHead = sizeof(shared::RecordHead);
  Ring& ring = *builder.ring;
  u64 tsc = 0;
  if (!uprobe_clock(&tsc)) tsc = 0;
  if (tsc != 0) __atomic_store_n(&ring.stamp, tsc, __ATOMIC_RELEASE);

  const Room room = room_of(builder.area, ring, builder.index);
  const u64 limit = room.bytes > kHead ? room.bytes - kHead : 0;
  const u32 most = builder.area->payload_limit;
  Payload payload{room.at + kHead, limit > most ? most : static_cast<u32>(limit), 0, 0, builder.in_section, most};
  Built built = Built::no_room;
  bool is_aside = false;
  for (;; is_aside = true) {
    built = build_payload(*builder.hit, builder.area, *builder.event, payload);
    if (built != Built::no_room || is_aside || !move_aside(builder, payload)) break;
  }
  if (builder.addends != nullptr) builder.addends->found = false;
  if (built == Built::ok && builder.addends != nullptr) find_sums(builder, payload);
  if (built == Built::ok && is_aside) built = Built::no_room;
  if (built == Built::ok && builder.looks) built = act_on(builder, payload);
  if (built == Built::ok && builder.is_off) built = Built::disabled;
  if (built == Built::ok && builder.event->test_count != 0) built = judge(builder, payload);
  if (built == Built::ok && builder.event->per_second != 0) built = take_turn(builder, tsc);
  u32 stack_bytes = 0;
  if (built == Built::ok && (builder.event->flags & shared::kEventShowsStack) != 0)
    built = add_stack(builder, payload, limit, stack_bytes);
  if (built != Built::ok) return built;
  if (stack_bytes != 0) payload.record_flags |= shared::kRecordStack;

  // Field by field: loading a head that was put together on the stack would wait for its stores.
  auto& head = *reinterpret_cast<shared::RecordHead*>(room.at);
  head.length = static_cast<u32>((sizeof head + payload.used + 7) & ~u64{7}) + stack_bytes;
  head.number = room.number;
  head.tsc = tsc;
  head.payload_bytes = payload.used;
  head.cpu = static_cast<u16>(builder.cpu);
  head.flags = static_cast<u16>(payload.record_flags | (tsc == 0 ? shared::kRecordNoClock : 0) |
                                (is_changing(*builder.hit) ? shared::kRecordChanged : 0));
  builder.commit = u64{room.position + head.length / 8} << 32 | (room.number + 1);
  return Built::ok;
}

namespace {

// Of the event, and of the CPU.
[[gnu::noinline]] void count_lost(AreaHeader* area, u64& cause) {
  count(cause);
  const u32 ring = shared::lost_ring(*area, current_cpu());
  if (ring < area->ring_count) count(at_offset<Ring>(area, area->ring_offset)[ring].lost);
}

inline void record(RecordBuilder& builder, u32 event_index) {
  EventCounts& counts = *builder.counts;
  Built built = Built::ok;
  const bool is_built = !builder.looks && record_on_cpu(builder, built);
  if (!is_built && !record_claimed(builder, built, Claim::any) && !claim_with_patience(builder, built)) {
    if (builder.addends != nullptr) builder.addends->found = false;
    return builder.is_off ? count(counts.disabled) : count_lost(builder.area, counts.lost_busy);
  }
  // Triggers that have looked at a record have acted.
  const bool may_repeat = !builder.looks;
  if (may_repeat && built == Built::no_room) static_cast<void>(record_claimed(builder, built, Claim::spacious));
  if (may_repeat && built == Built::no_room && builder.area->patience != 0) record_with_patience(builder, built);
  if (builder.is_off) built = Built::disabled;
  if (built == Built::dropped) count_dropped(builder.area, event_index, builder.cpu);
  if (built == Built::disabled) count(counts.disabled);
  if (built == Built::over_rate) count(counts.over_rate);
  if (built == Built::no_room) count_lost(builder.area, counts.lost_full);
  if (built == Built::too_big) count_lost(builder.area, counts.lost_too_big);
}

[[gnu::noinline]] void record_counted(RecordBuilder& builder, u32 event_index) {
  Addends addends;
  builder.addends = &addends;
  begin_switched(builder);
  record(builder, event_index);
  addends.found ? add_up(addends) : count_unseen(builder.area, *builder.event);
  if (builder.post_trigger != 0) run_post_triggers(builder);
}

// For a session in which events can be off. Not inlined: only such a session needs the stack for it.
[[gnu::noinline]] void record_switched(const Hit& hit, AreaHeader* area, const Event& event, u32 event_index) {
  RecordBuilder builder{.hit = &hit, .area = area, .event = &event, .counts = &counts_of(area, event_index)};
  if (!hit.can_change && (event.flags & shared::kEventActs) != 0) count(builder.counts->not_changed);
  if ((event.flags & shared::kEventCounts) != 0) return record_counted(builder, event_index);
  if (!begin_switched(builder)) return count(builder.counts->disabled);
  record(builder, event_index);
  if (builder.post_trigger != 0) run_post_triggers(builder);
}

}  // namespace

void record_event(const Hit& hit, AreaHeader* area, u32 event_index) {
  if (!is_recording(*area)) return;
  if (event_index >= area->event_count || !rings_make_sense(area)) return;
  const Event& event = at_offset<Event>(area, area->event_offset)[event_index];
  if (!is_recording(event) || is_summed_alone(event)) return;
  if (area->switch_count != 0) return record_switched(hit, area, event, event_index);
  RecordBuilder builder{.hit = &hit, .area = area, .event = &event, .counts = &counts_of(area, event_index)};
  record(builder, event_index);
}

void count_missed(AreaHeader* area, u32 event_index) {
  if (event_index >= area->event_count) return;
  count(counts_of(area, event_index).missed);
  miss_return(area, at_offset<Event>(area, area->event_offset)[event_index]);
}

}  // namespace uprobe::agent
