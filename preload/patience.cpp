// SPDX-License-Identifier: MIT
// A hit that waits for room in the rings, where the session's user wants that rather than to lose it (AreaHeader::patience).
//
// The thread goes on by itself: after the time that the user has set, or where the tool's heartbeat has been still for half a second, so
// that a tool that is stopped or dead holds no program. It holds no lock and no ring while it waits, and a signal handler may run.
#include "preload/ring.h"
#include "preload/system_call.h"

namespace uprobe::agent {
namespace {

constexpr u64 kStillness = 500'000'000;  // nanoseconds

// A thread that reads one of them before the other has changed waits a little longer or less.
u32 seen_beat;
u64 seen_at;

bool is_tool_still(const AreaHeader& area, u64 now) {
  return area.tool_gone != 0 || is_still(area, {seen_beat, seen_at}, now, kStillness);
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

bool has_patience(const ProcessBlock& block, const AreaHeader& area, u64& begun) {
  u64 now = 0;
  if (area.patience == 0 || area.tick_rate == 0 || !uprobe_clock(&now)) return false;
  if (begun == 0) begun = now;
  if (now - begun >= area.patience || is_tool_still(area, now) || !is_recording(area)) return false;
  pause_once(block);
  return true;
}

[[gnu::noinline]] void record_with_patience(RecordBuilder& builder, Built& built) {
  u64 begun = 0;
  while (built == Built::no_room && has_patience(*builder.hit->block, *builder.area, begun))
    if (!record_on_cpu(builder, built) && !record_claimed(builder, built, Claim::any)) built = Built::no_room;
}

}  // namespace uprobe::agent
