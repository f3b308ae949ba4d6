// SPDX-License-Identifier: MIT
// Compiled like the agent: see hit_driver.h.
#include "bench/hit_driver.h"

#include "arch/entry/cpu.h"
#include "preload/agent.h"

namespace uprobe::bench {
namespace {

using namespace shared;

constexpr u64 kHitsBetweenReads = 256;

void declare_read(AreaHeader* area) {
  Ring* rings = agent::at_offset<Ring>(area, area->ring_offset);
  for (u32 i = 0; i < area->ring_count; ++i)
    __atomic_store_n(&rings[i].tail, static_cast<u32>(rings[i].commit >> 32), __ATOMIC_RELEASE);
}

agent::Hit hit_of(const HandHit& hit) { return {hit.block, hit.point, hit.registers, hit.tid, true, false}; }

u64 now() {
  u64 time = 0;
  agent::uprobe_clock(&time);
  return time;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) void uprobe_bench_hits(const HandHit* hit, AreaHeader* area, u64 count) {
  agent::Hit one = hit_of(*hit);
  for (u64 i = 0; i < count; ++i) {
    agent::handle_hit(one);
    if (i % kHitsBetweenReads == kHitsBetweenReads - 1) declare_read(area);
  }
  declare_read(area);
}

__attribute__((visibility("default"))) void uprobe_bench_paced_hits(const HandHit* hit, u64 count, u64 ticks) {
  agent::Hit one = hit_of(*hit);
  u64 due = now();
  for (u64 i = 0; i < count; ++i, due += ticks) {
    while (now() < due) agent::spin();
    agent::handle_hit(one);
  }
}

}  // extern "C"

}  // namespace uprobe::bench
