// SPDX-License-Identifier: MIT
// Rings from the writer's side: declarations that record.cpp, ring_rseq.cpp and ring_claim.cpp share. See session_area.h.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// The place of a ring's next record.
struct Room {
  u8* at;
  u32 position;  // units of 8 bytes
  u32 number;
  u64 bytes;
};

[[gnu::always_inline]] inline Room room_of(AreaHeader* area, const Ring& ring, u32 index) {
  const u64 commit = __atomic_load_n(&ring.commit, __ATOMIC_RELAXED);
  const u32 position = static_cast<u32>(commit >> 32);
  const u32 tail = __atomic_load_n(&ring.tail, __ATOMIC_ACQUIRE);
  const u64 used = u64{position - tail} * 8;
  u8* data = at_offset<u8>(area, area->data_offset + index * 2 * area->ring_bytes);
  return Room{.at = data + (u64{position} * 8 & (area->ring_bytes - 1)),
              .position = position,
              .number = static_cast<u32>(commit),
              .bytes = used < area->ring_bytes ? area->ring_bytes - used : 0};
}

// The sums that a hit adds to once it is certain that it is recorded. Small: they lie on the application's stack.
struct Addend {
  u64* sums;  // of the entry, the count of hits first; or the count of dropped hits
  u64 values[shared::kMaxHistogramValues];
};
struct Addends {
  bool found;  // the fields below are set
  u8 count;
  u8 value_counts[shared::kMaxEventHistograms];
  Addend list[shared::kMaxEventHistograms];
};

// Whether the session was on when the hit came, off, or is to be tested after the triggers (open).
enum class SessionWas : u8 { on, off, open };

// A record to be built at the end of a ring that no other thread writes at that time. `ring` and the fields after it are set by
// the function that finds the ring.
struct RecordBuilder {
  const Hit* hit;
  AreaHeader* area;
  const Event* event;
  EventCounts* counts;
  Ring* ring = nullptr;
  u32 index = 0;  // of the ring
  u32 cpu = 0;
  bool in_section = false;
  // trigger.cpp:
  bool looks = false;                   // triggers are to be run on the built record: never in a section
  SessionWas session = SessionWas::on;  // when the hit came
  bool is_off = false;                  // the event is off, or the session
  u32 post_trigger = 0;                 // index + 1 of the event's trigger that acts after the record is published
  Addends* addends = nullptr;  // of an event that adds to histograms; else null. Such a hit is built even if all is off
  u64 commit = 0;              // out, with Built::ok: stored to ring->commit it publishes the record
};
// Stamps and builds. Runs inside the rseq section as well.
Built build_record(RecordBuilder& builder);

// trigger.cpp. In a session in which events can be off: whether the hit is to be recorded, or at least built.
bool begin_switched(RecordBuilder& builder);
// Runs the triggers of a builder that `looks`: `ok` or `disabled`.
Built act_on(RecordBuilder& builder, const Payload& payload);
void run_post_triggers(const RecordBuilder& builder);
// Of an event with kEventShowsStack: whether this hit's stack is to be recorded. Called once, when the record is wanted.
bool wants_stack(const RecordBuilder& builder, const Payload& payload);
// Whether its tests hold for the built record. A trigger that asks for a name that may not be fetched does not act.
bool holds(const RecordBuilder& builder, const Payload& payload, const shared::Trigger& trigger);
// Takes one of the remaining acts of a trigger. False: none is left.
bool take_one(u64& left);
struct Triggers {
  const shared::Trigger* first;
  u64* left;  // for each, how often it may still act
  u32 count;
};
Triggers triggers_of(AreaHeader* area, const Event& event);
inline bool is_histogram(const shared::Trigger& trigger) {
  return trigger.kind == static_cast<u32>(shared::TriggerKind::histogram);
}

// histogram.cpp. Fills builder.addends from the built record; add_up adds them.
void find_sums(const RecordBuilder& builder, const Payload& payload);
void add_up(const Addends& addends);
// The hit could not be built: it is missing in every histogram of the event.
void count_unseen(AreaHeader* area, const Event& event);

// filter.cpp. Whether the task's name may be fetched, which takes a system call: not where a seccomp filter may be in force.
inline bool may_fetch_name(const RecordBuilder& builder) {
  return (builder.hit->block->flags & shared::kBlockFiltered) == 0;
}
// The caller's, kNameBytes. False: it may not be fetched, or not in a section.
bool fetch_name(const RecordBuilder& builder, u8* name);
// Runs the session's tests from `first` on over the built record; without tests everything passes. Fetches the name if a test
// needs it; `unknown`: it may not be fetched, or not in a section.
shared::Verdict verdict_of(const RecordBuilder& builder, const Payload& payload, u32 first, u32 count);
// Whether the built record is wanted: `ok`, `dropped`, or `wants_call`.
Built judge(const RecordBuilder& builder, Payload& payload);
void count_dropped(AreaHeader* area, u32 event_index, u32 cpu);

// struct rseq of uapi/linux/rseq.h.
struct Rseq {
  u32 cpu_id_start;
  u32 cpu_id;  // negative: not registered
  u64 rseq_cs;
  u32 flags;
};
// ring_rseq.cpp. Null: this thread has no area of its own.
Rseq* rseq_of(ProcessBlock& block);

// ring_rseq.cpp. Makes one record in the ring of the CPU. False: this thread has no rseq now, or the record cannot be built in
// a section; nothing has been done.
bool record_on_cpu(RecordBuilder& builder, Built& built);
// Finds libc's struct rseq. Makes system calls: not in a probe's hit. Does nothing if a filter may be in force.
void learn_rseq(ProcessBlock& block);
// For a new thread with a control block of its own: libc has not registered rseq yet, and a reused block may still hold the CPU
// of an earlier thread.
void forget_cpu(const ProcessBlock& block);

// patience.cpp. Makes one record after the ring was full (`built`), as soon as the reader has made room for it, if it does so in the time
// that the session allows.
void record_with_patience(RecordBuilder& builder, Built& built);
// The same after every ring was claimed by other threads. False: none has become free in that time.
bool claim_with_patience(RecordBuilder& builder, Built& built);
// For a loop that waits for room, with a Wait of its own. Waits a moment. False: hits do not wait in this session, the time is over, or
// the tool is still or gone.
struct Wait {
  u64 begun = 0;  // when it began; 0: not yet
  u64 heard = 0;  // when the heartbeat had moved
  u32 beat = 0;   // to this value
};
bool has_patience(const ProcessBlock& block, const AreaHeader& area, Wait& wait);

// ring_claim.cpp. Which rings a record may claim: any, or those that are not nearly full, for one that the ring of its CPU has no
// room for. What is left there is for records that have no other ring.
enum class Claim : u8 { any, spacious };
// Makes one record in a ring that it claims. False: every such ring is taken.
bool record_claimed(RecordBuilder& builder, Built& built, Claim claim);
// The index of a ring that is now the caller's; area->ring_count: none is free. CPUs start at different ones.
u32 claim_ring(AreaHeader* area, u32 owner, u32 cpu, Claim claim);

// Whether the area's numbers about rings can be used.
inline bool rings_make_sense(const AreaHeader* area) {
  return area->ring_count != 0 && area->ring_count <= shared::kMaxRings && area->cpu_ring_count <= area->ring_count;
}

}  // namespace uprobe::agent
