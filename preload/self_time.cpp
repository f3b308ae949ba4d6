// SPDX-License-Identifier: MIT
#include "preload/self_time.h"

namespace uprobe::agent {
namespace {

// A slot belongs to its thread for good: the number may come back as another thread's, which goes on with the sum.
struct ThreadSum {
  u64 name;  // 0: free
  u64 sum;
};
constexpr u32 kSlotBits = 12, kLooks = 32;

ThreadSum sums[1 << kSlotBits];

u64 name_of(const AreaHeader& area, u32 tid) {
  const u64 mixed = (area.name ^ (u64{tid} << 1 | 1)) * 0x9e3779b97f4a7c15;
  return (mixed ^ mixed >> 32) | 1;
}

// The thread's slot, or one that is made its own. Null: there is none within reach.
ThreadSum* slot_of(const AreaHeader& area, u32 tid) {
  const u64 name = name_of(area, tid);
  constexpr u64 kMask = (1 << kSlotBits) - 1;
  for (u32 i = 0; i < kLooks; ++i) {
    ThreadSum& slot = sums[((name >> 8) + i) & kMask];
    u64 seen = __atomic_load_n(&slot.name, __ATOMIC_RELAXED);
    if (seen == 0 && __atomic_compare_exchange_n(&slot.name, &seen, name, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return &slot;
    if (seen == name) return &slot;
  }
  return nullptr;
}

}  // namespace

u64 finished_inside(const AreaHeader& area, u32 tid) {
  const ThreadSum* const slot = slot_of(area, tid);
  return slot == nullptr ? kNoSum : __atomic_load_n(&slot->sum, __ATOMIC_RELAXED);
}

bool add_finished(const AreaHeader& area, u32 tid, u64 inside, u64 nanoseconds, u64& self) {
  self = 0;
  ThreadSum* const slot = slot_of(area, tid);
  if (slot == nullptr || inside == kNoSum) return false;
  const u64 others = __atomic_load_n(&slot->sum, __ATOMIC_RELAXED) - inside;
  if (others > nanoseconds) return false;
  self = nanoseconds - others;
  __atomic_fetch_add(&slot->sum, self, __ATOMIC_RELAXED);
  return true;
}

// More than any call takes (two weeks), so that it shows in those around it; and the sums go round after thousands of them.
void add_unknown(const AreaHeader& area, u32 tid) {
  constexpr u64 kLong = u64{1} << 50;
  if (ThreadSum* const slot = slot_of(area, tid)) __atomic_fetch_add(&slot->sum, kLong, __ATOMIC_RELAXED);
}

}  // namespace uprobe::agent
