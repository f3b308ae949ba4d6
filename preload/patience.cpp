// SPDX-License-Identifier: MIT
// A hit that waits for room in the rings, or for a ring that no other thread has claimed, where the session's user wants that rather
// than to lose it (AreaHeader::patience).
//
// The thread goes on by itself: after the time that the user has set, when the tool has died, or when its heartbeat has been still for half
// a second, so that a tool that is stopped holds no program. It holds no lock and no ring while it waits, and a signal handler may run.
//
// Only a thread that waits measures how long the heartbeat is still: a pause between hits, in which program and tool may have been stopped
// together, is none of the tool's. What it finds is kept, so that the hits after it do not wait each for themselves.
#include "preload/ring.h"
#include "preload/system_call.h"

namespace uprobe::agent {
namespace {

constexpr u64 kStillness = 500'000'000;  // nanoseconds

// The heartbeat that was found still, and the session's; 0: none. Until it moves, no hit waits.
u64 still_beat;

u64 beat_of(const AreaHeader& area, u32 beat) { return (area.name | 1) << 32 | beat; }

bool is_tool_still(const AreaHeader& area, Wait& wait, u64 now) {
  const u32 beat = __atomic_load_n(&area.tool_heartbeat, __ATOMIC_ACQUIRE);
  if (__atomic_load_n(&still_beat, __ATOMIC_RELAXED) == beat_of(area, beat)) return true;
  if (wait.heard == 0 || beat != wait.beat) {
    wait.beat = beat, wait.heard = now;
    return false;
  }
  if (now - wait.heard <= (kStillness << 32) / area.tick_rate) return false;
  __atomic_store_n(&still_beat, beat_of(area, beat), __ATOMIC_RELAXED);
  return true;
}

// sched_yield: it neither blocks nor fails, changes no state of the thread, and leaves nothing that a signal would have to end or
// restart. Where a seccomp filter may be in force the thread spins.
void pause_once(const ProcessBlock& block) {
  if ((block.flags & shared::kBlockFiltered) == 0)
    system_call(kSysSchedYield);
  else
    __builtin_ia32_pause();
}

}  // namespace

bool has_patience(const ProcessBlock& block, const AreaHeader& area, Wait& wait) {
  u64 now = 0;
  if (area.patience == 0 || area.tick_rate == 0 || area.tool_gone != 0 || is_life_over(area) || !uprobe_clock(&now))
    return false;
  if (wait.begun == 0) wait.begun = now;
  if (now - wait.begun >= area.patience || is_tool_still(area, wait, now) || !is_recording(area)) return false;
  pause_once(block);
  return true;
}

[[gnu::noinline]] void record_with_patience(RecordBuilder& builder, Built& built) {
  Wait wait;
  while (built == Built::no_room && has_patience(*builder.hit->block, *builder.area, wait))
    if (!record_on_cpu(builder, built) && !record_claimed(builder, built, Claim::any)) built = Built::no_room;
}

[[gnu::noinline]] bool claim_with_patience(RecordBuilder& builder, Built& built) {
  Wait wait;
  while (has_patience(*builder.hit->block, *builder.area, wait))
    if (record_claimed(builder, built, Claim::any)) return true;
  return false;
}

}  // namespace uprobe::agent
