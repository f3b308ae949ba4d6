// SPDX-License-Identifier: MIT
// Slots of islands (engine/shared/trampoline.h) and their points. See slots.cpp.
#pragma once

#include "engine/shared/trampoline.h"
#include "preload/agent.h"

namespace uprobe::agent {

// The used part of the island that an address is in; {0, 0}: it is in none.
struct IslandPart {
  u64 begin, end;
};
IslandPart island_around(const ProcessBlock& block, u64 address);

// A point's slot. The copy of a point is in its slot.
struct Slot {
  const shared::SlotHead* head;  // null: none
  const Point* point;
};
// The slot that holds an address, from its head to the end of its copy.
Slot slot_around(const ProcessBlock& block, u64 address);

// The slot to whose thunk the switch leads that begins at an address of an island; none: no switch does.
Slot slot_of_switch(const ProcessBlock& block, u64 begin);
// The switch that an address lies in (arch/shared/trampoline_frame.h): where it begins; 0: in none.
u64 switch_around(const ProcessBlock& block, u64 ip);

// The point that the head of a slot names, null: the index is out of range.
const Point* point_of(const ProcessBlock& block, const shared::SlotHead& head);

}  // namespace uprobe::agent
