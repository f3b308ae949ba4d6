// Publishing: a ring is claimed, the record is built in place behind its head and made visible by one store.
//
// The claim is a lock cmpxchg and not an rseq section: a breakpoint costs microseconds anyway, and the claim is right in
// every thread (before libc registers rseq, in vfork children, under musl, in Go). A thread that finds a ring claimed takes
// the next one; it never waits. A signal handler that hits while its own thread is building a record sees that ring claimed
// and takes another. The ring's layout and its one-word commit are the ones that an rseq writer needs as well.
#include "arch/x86/entry/cpu.h"
#include "preload/agent.h"

namespace uprobe::agent {
namespace {

Ring* claim(AreaHeader* area, u32 tid, u32 first) {
  Ring* rings = at_offset<Ring>(area, area->ring_offset);
  const u32 n = area->ring_count;
  if (n == 0 || n > shared::kMaxRings) return nullptr;
  u32 index = first < n ? first : first % n;
  for (u32 i = 0; i < n; ++i, index = index + 1 == n ? 0 : index + 1) {
    u32 expected = 0;
    Ring& ring = rings[index];
    if (__atomic_load_n(&ring.owner, __ATOMIC_RELAXED) != 0) continue;
    if (__atomic_compare_exchange_n(&ring.owner, &expected, tid, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
      return &ring;
  }
  return nullptr;
}

struct Room {
  u8* at;
  u32 position;  // units of 8 bytes
  u32 number;
  u64 bytes;
};

Room room_of(AreaHeader* area, const Ring& ring, u32 index) {
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

// Stamp, build, commit. The caller owns the ring.
Built write_record(const Hit& hit, AreaHeader* area, Ring& ring, u32 index, const Event& event, u32 cpu) {
  constexpr u32 kHead = sizeof(shared::RecordHead);
  u64 tsc = 0;
  if (!uprobe_clock(&tsc)) tsc = 0;
  if (tsc != 0) __atomic_store_n(&ring.stamp, tsc, __ATOMIC_RELEASE);

  const Room room = room_of(area, ring, index);
  if (room.bytes < kHead + sizeof(shared::PayloadHead)) return Built::no_room;
  const u64 limit = room.bytes - kHead;
  Payload payload{room.at + kHead, static_cast<u32>(limit > shared::kMaxPayload ? shared::kMaxPayload : limit), 0, 0};
  const Built built = build_payload(hit, area, event, payload);
  if (built != Built::ok) return built;

  // Field by field: reloading a head that was put together on the stack would wait for its stores.
  auto& head = *reinterpret_cast<shared::RecordHead*>(room.at);
  head.length = static_cast<u32>((sizeof head + payload.used + 7) & ~u64{7});
  head.number = room.number;
  head.tsc = tsc;
  head.payload_bytes = payload.used;
  head.cpu = static_cast<u16>(cpu);
  head.flags = static_cast<u16>(payload.record_flags | (tsc == 0 ? shared::kRecordNoClock : 0));
  const u64 commit = u64{room.position + head.length / 8} << 32 | (room.number + 1);
  __atomic_store_n(&ring.commit, commit, __ATOMIC_RELEASE);
  return Built::ok;
}

}  // namespace

void record_event(const Hit& hit, AreaHeader* area, u32 event_index) {
  if (__atomic_load_n(&area->state, __ATOMIC_RELAXED) != static_cast<u32>(shared::SessionState::recording)) return;
  if (event_index >= area->event_count) return;
  Event& event = at_offset<Event>(area, area->event_offset)[event_index];
  const u32 cpu = current_cpu();
  Ring* ring = claim(area, hit.tid, cpu);
  if (ring == nullptr) return count(event.lost_busy);
  const u32 index = static_cast<u32>(ring - at_offset<Ring>(area, area->ring_offset));
  const Built built = write_record(hit, area, *ring, index, event, cpu);
  __atomic_store_n(&ring->owner, 0, __ATOMIC_RELEASE);
  if (built == Built::no_room) count(event.lost_full);
  if (built == Built::too_big) count(event.lost_too_big);
}

}  // namespace uprobe::agent
