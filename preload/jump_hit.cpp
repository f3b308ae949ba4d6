// SPDX-License-Identifier: MIT
// Hits by jump that the body does not record itself, and returns through a stub.
#include "arch/entry/cpu.h"
#include "arch/entry/number_load.h"
#include "arch/entry/trampoline_registers.h"
#include "preload/agent.h"
#include "preload/call_sums.h"
#include "preload/calls.h"
#include "preload/handler_entry.h"
#include "preload/quick_calls.h"
#include "preload/slots.h"
#include "preload/stubs.h"

namespace uprobe::agent {
namespace {

constexpr u32 kFaulted = 1;  // see jump.S
constexpr u32 kWaits = 1;    // serves as a pending word that is not 0

const u32* word_of_thread(ProcessBlock& block) { return reinterpret_cast<const u32*>(pending_word(block)); }

// The call that follows the point, with the registers that its instruction leaves.
const u32* take_call(ProcessBlock& block, const Point& point, Registers& registers, shared::TrampolineFrame& kept) {
  const NumberLoad load = load_at(undo_of(block, point).original, point.address);
  const auto value = [&](shared::Reg reg) { return load.to == reg ? load.value : registers[reg]; };
  SystemCall call{static_cast<long>(value(shared::kCallNumberRegister)), {}, registers[shared::Reg::sp]};
  for (u32 i = 0; i < 6; ++i) call.arguments[i] = value(shared::kCallArgumentRegisters[i]);
  if (point.role == static_cast<u32>(shared::PointRole::open_call))
    return wants_open(call) ? &kWaits : word_of_thread(block);
  long result = 0;
  if (!make_at_once(block, call, result)) return &kWaits;
  put_loaded(kept, registers, load.to, load.value);
  finish_call(kept, registers, point.address + point.insn_bytes + shared::kSystemCallBytes, result);
  return word_of_thread(block);
}

}  // namespace

extern "C" __attribute__((visibility("hidden"), used, flatten)) const u32* uprobe_on_jump(const shared::SlotHead* slot,
                                                                                          Registers* registers,
                                                                                          u32 how) {
  ProcessBlock& block = *uprobe_block;
  (*registers)[shared::Reg::ip] = slot->address;
  const Point* point = point_of(block, *slot);
  if (point == nullptr) return word_of_thread(block);
  Hit hit{&block, point, registers, thread_id(block, true), true, (how & kFaulted) != 0};
  if (sum_alone(hit)) return word_of_thread(block);
  const u64 sp = (*registers)[shared::Reg::sp];
  handle_hit(hit);
  lead_through_stub(block, *point, sp, true);
  return word_of_thread(block);
}

// With a shadow stack no thread may leave the trampoline but by its return (see leave_trampoline()), so the copy leads on to the call.
extern "C" __attribute__((visibility("hidden"), used, noinline)) const u32* uprobe_on_call(
    const shared::SlotHead* slot, Registers* registers, u32 how, shared::TrampolineFrame* kept) {
  ProcessBlock& block = *uprobe_block;
  const Point* point = point_of(block, *slot);
  if (point == nullptr) return word_of_thread(block);
  if (point->consumer != 0) uprobe_on_jump(slot, registers, how);
  if (shadow_stack() != 0) return word_of_thread(block);
  return take_call(block, *point, *registers, *kept);
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
