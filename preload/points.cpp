// SPDX-License-Identifier: MIT
// From an address to its point: a hash with linear probing that the tool fills. An entry once published stays.
#include "preload/agent.h"

namespace uprobe::agent {

const Point* find_point(const ProcessBlock& block, u64 address) {
  const u32 mask = (u32{1} << block.hash_bits) - 1;
  const u32* hash = at_offset<u32>(&block, block.hash_offset);
  const Point* points = at_offset<Point>(&block, block.point_offset);
  u32 slot = shared::hash_slot(address, block.hash_bits);
  for (u32 steps = 0; steps <= mask; ++steps, slot = (slot + 1) & mask) {
    const u32 entry = __atomic_load_n(&hash[slot], __ATOMIC_ACQUIRE);
    if (entry == 0) return nullptr;
    if (points[entry - 1].address == address) return &points[entry - 1];
  }
  return nullptr;
}

u32 index_of(const ProcessBlock& block, const Point& point) {
  return static_cast<u32>(&point - at_offset<Point>(&block, block.point_offset));
}

const shared::Undo& undo_of(const ProcessBlock& block, const Point& point) {
  return at_offset<shared::Undo>(&block, block.undo_offset)[index_of(block, point)];
}

}  // namespace uprobe::agent
