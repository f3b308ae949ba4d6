// SPDX-License-Identifier: MIT
// Hits by jump that the body does not record itself, and returns through a stub.
#include "arch/entry/cpu.h"
#include "preload/agent.h"
#include "preload/call_sums.h"
#include "preload/calls.h"
#include "preload/handler_entry.h"
#include "preload/slots.h"
#include "preload/stubs.h"

namespace uprobe::agent {
namespace {

constexpr u32 kFaulted = 1;  // see jump.S
constexpr u32 kWaits = 1;    // serves as a pending word that is not 0

}  // namespace

extern "C" __attribute__((visibility("hidden"), used, flatten)) const u32* uprobe_on_jump(const shared::SlotHead* slot,
                                                                                          Registers* registers,
                                                                                          u32 how) {
  ProcessBlock& block = *uprobe_block;
  (*registers)[shared::Reg::ip] = slot->address;
  const Point* point = point_of(block, *slot);
  if (point == nullptr) return reinterpret_cast<const u32*>(pending_word(block));
  Hit hit{&block, point, registers, thread_id(block, true), true, (how & kFaulted) != 0};
  if (sum_alone(hit)) return reinterpret_cast<const u32*>(pending_word(block));
  const u64 sp = (*registers)[shared::Reg::sp];
  handle_hit(hit);
  lead_through_stub(block, *point, sp, true);
  const bool can_leave_call = shadow_stack() == 0;  // see leave_trampoline()
  const bool is_open = point->role == static_cast<u32>(shared::PointRole::open_call);
  if (is_open && can_leave_call && wants_open(block, *point, *registers)) return &kWaits;
  return reinterpret_cast<const u32*>(pending_word(block));
}

extern "C" __attribute__((visibility("hidden"), used, flatten)) const u32* uprobe_on_return(u32 number,
                                                                                            Registers* registers) {
  ProcessBlock& block = *uprobe_block;
  const shared::ReturnSlot& slot = uprobe_return_slots[number];
  Hit hit{&block, &point_of(block, slot), registers, thread_id(block, true), true, false};
  handle_return(hit, shared::ConsumerKind::stub, slot.root);
  return reinterpret_cast<const u32*>(pending_word(block));
}

}  // namespace uprobe::agent
