// SPDX-License-Identifier: MIT
// See HeardBeat in agent.h.
#include "preload/agent.h"

namespace uprobe::agent {

// A thread that sees the new heartbeat sees its time too, or an older one's heartbeat, and notes both again. The first look finds
// the first heartbeat, which may be 0.
[[gnu::noinline]] bool is_still(const AreaHeader& area, HeardBeat heard, u64 now, u64 nanoseconds) {
  const u32 beat = __atomic_load_n(&area.tool_heartbeat, __ATOMIC_ACQUIRE);
  const bool is_same = beat == __atomic_load_n(&heard.beat, __ATOMIC_ACQUIRE);
  const u64 at = __atomic_load_n(&heard.at, __ATOMIC_ACQUIRE);
  if (!is_same || at == 0) {
    __atomic_store_n(&heard.at, now, __ATOMIC_RELEASE);
    __atomic_store_n(&heard.beat, beat, __ATOMIC_RELEASE);
    return false;
  }
  return area.tick_rate != 0 && now > at && now - at > (nanoseconds << 32) / area.tick_rate;
}

}  // namespace uprobe::agent
