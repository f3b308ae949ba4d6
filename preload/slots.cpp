// SPDX-License-Identifier: MIT
// From an address in an island to the point whose slot holds it: goes back in steps of kSlotUnit, to the first place that is
// proven to be a point's slot. A slot that its point no longer uses (another was made when the point was armed again) has none.
#include "preload/slots.h"

#include "preload/system_call.h"

namespace uprobe::agent {

using shared::SlotHead;

IslandPart island_around(const ProcessBlock& block, u64 address) {
  for (u32 i = 0; i < block.island_count && i < shared::kMaxIslands; ++i) {
    const shared::Island& island = block.islands[i];
    if (address - island.base < island.used) return {island.base, island.base + island.used};
  }
  return {0, 0};
}

const Point* point_of(const ProcessBlock& block, const SlotHead& head) {
  return head.point < block.point_count ? &at_offset<Point>(&block, block.point_offset)[head.point] : nullptr;
}

Slot slot_around(const ProcessBlock& block, u64 address) {
  const IslandPart island = island_around(block, address);
  if (island.end == 0) return {nullptr, nullptr};
  u64 at = address & ~u64{shared::kSlotUnit - 1};
  for (; at >= island.begin && address - at < shared::kMaxCopyInSlot; at -= shared::kSlotUnit) {
    const auto* head = reinterpret_cast<const SlotHead*>(at);
    const Point* point = point_of(block, *head);
    if (point == nullptr || !shared::is_slot_of(*head, at, *point)) continue;
    return address - at < point->copy - at + point->copy_bytes ? Slot{head, point} : Slot{nullptr, nullptr};
  }
  return {nullptr, nullptr};
}

Slot slot_of_switch(const ProcessBlock& block, u64 begin) {
  const auto* code = reinterpret_cast<const u8*>(begin);
  i32 distance = 0;
  if (__builtin_memcmp(code, shared::kSwitch, sizeof shared::kSwitch) != 0) return {nullptr, nullptr};
  __builtin_memcpy(&distance, code + shared::kSwitchJump + 1, sizeof distance);
  const u64 call = begin + shared::kSwitchJump + shared::kJumpBytes + static_cast<u64>(i64{distance});
  const Slot slot = slot_around(block, call);
  const u64 thunk = as_word(slot.head) + shared::kThunkInSlot;
  return slot.head != nullptr && call == thunk + shared::kSwitchedCall ? slot : Slot{nullptr, nullptr};
}

// Only a switch has its bytes and leads to the call of a point's thunk.
u64 switch_around(const ProcessBlock& block, u64 ip) {
  const IslandPart island = island_around(block, ip);
  u64 begin = ip & ~u64{shared::kSlotUnit - 1};
  for (; begin >= island.begin && begin < island.end && ip - begin < shared::kSwitchBytes; begin -= shared::kSlotUnit)
    if (island.end - begin >= shared::kSwitchBytes && slot_of_switch(block, begin).head != nullptr) return begin;
  return 0;
}

}  // namespace uprobe::agent
