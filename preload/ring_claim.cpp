// SPDX-License-Identifier: MIT
// Claimed rings: correct in every thread, also before libc registers rseq, in vfork children, under musl, in Go.
//
// A thread that finds a ring claimed takes the next one; it never waits. A signal handler that hits while its own thread is
// building a record sees that ring claimed and takes another. A thread that leaves the building of a record by siglongjmp
// leaves its ring claimed for good: CPU rings have no such loss.
#include "arch/entry/cpu.h"
#include "preload/ring.h"

namespace uprobe::agent {

namespace {

// A hint: the ring may fill up until it is claimed.
bool is_spacious(AreaHeader* area, const Ring& ring, u32 index) {
  return room_of(area, ring, index).bytes > area->ring_bytes / 8;
}

}  // namespace

u32 claim_ring(AreaHeader* area, u32 owner, u32 cpu, Claim claim) {
  Ring* rings = at_offset<Ring>(area, area->ring_offset);
  const u32 first = area->cpu_ring_count, n = area->ring_count - first;
  if (n == 0) return area->ring_count;
  u32 index = cpu < n ? cpu : cpu % n;
  for (u32 i = 0; i < n; ++i, index = index + 1 == n ? 0 : index + 1) {
    u32 expected = 0;
    Ring& ring = rings[first + index];
    if (__atomic_load_n(&ring.owner, __ATOMIC_RELAXED) != 0) continue;
    if (claim == Claim::spacious && !is_spacious(area, ring, first + index)) continue;
    if (__atomic_compare_exchange_n(&ring.owner, &expected, owner, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
      return first + index;
  }
  return area->ring_count;
}

// Not inlined: the other way to record takes enough stack.
[[gnu::noinline]] bool record_claimed(RecordBuilder& builder, Built& built, Claim claim) {
  AreaHeader* const area = builder.area;
  const u32 cpu = current_cpu();
  const Hit& hit = *builder.hit;
  const u32 index = claim_ring(area, shared::owner_of(task_words(*hit.block), hit.tid), cpu, claim);
  if (index >= area->ring_count) return false;
  Ring& ring = at_offset<Ring>(area, area->ring_offset)[index];
  builder.ring = &ring, builder.index = index, builder.cpu = cpu, builder.in_section = false;
  built = build_record(builder);
  if (built == Built::ok) __atomic_store_n(&ring.commit, builder.commit, __ATOMIC_RELEASE);
  __atomic_store_n(&ring.owner, 0, __ATOMIC_RELEASE);
  return true;
}

}  // namespace uprobe::agent
