// SPDX-License-Identifier: MIT
// A hit: the consumers of a point, newest first; those of a return behind the others.
#include "preload/agent.h"
#include "preload/stubs.h"

namespace uprobe::agent {
namespace {

using shared::Consumer;
using shared::ConsumerKind;

// Behind a stub nobody knows what else the return has taken: where that is something, nothing of the entry is found.
u32 popped_by(const Consumer& consumer) {
  return consumer.kind == static_cast<u8>(ConsumerKind::exit) ? consumer.pops : u32{sizeof(u64)};
}

bool is(const Consumer& consumer, ConsumerKind kind) { return consumer.kind == static_cast<u8>(kind); }

// From the stack pointer at the point: where the return address is, and the stack pointer behind the return. Both 0: nobody
// wants to know of a return.
struct Leaves {
  u32 lead, moves, restored;
};

// Of a consumer of the return. Who comes to a function once more by tail calls, before the first of these has returned, is not
// followed: the stub that leads back is that of the first call, and so is what has been noted.
[[gnu::noinline]] bool notes_now(const Hit& hit, const AreaHeader* area, const Consumer& consumer) {
  if (is(consumer, ConsumerKind::note)) return true;
  if (!is(consumer, ConsumerKind::stub) || noting_event(area, consumer.event) == nullptr) return false;
  return !hit.may_fault || !is_under_way(*hit.block, *hit.point, (*hit.registers)[shared::Reg::sp]);
}

// The consumers of one kind.
inline Leaves feed(Hit& hit, ConsumerKind kind) {
  Leaves leaves{0, 0, 0};
  each_consumer(*hit.block, *hit.point, [&](const Consumer& consumer) {
    if (is(consumer, ConsumerKind::exit))
      leaves = {consumer.lead, u32{consumer.lead} + consumer.pops, consumer.restored};
    AreaHeader* area = session_area(*hit.block, consumer.session);
    if (area == nullptr) return;
    if (kind == ConsumerKind::entry && notes_now(hit, area, consumer)) note_entry(hit, area, consumer.event);
    if (!is(consumer, kind)) return;
    hit.function = hit.point->address - static_cast<u64>(i64{consumer.distance});
    if (kind != ConsumerKind::entry)
      take_entry(hit, area, consumer.event, (*hit.registers)[shared::Reg::sp] - popped_by(consumer));
    record_event(hit, area, consumer.event);
  });
  return leaves;
}

// What stands at the point is a return, or what leads to one, or a jump in whose stead somebody else returns: the registers
// become those behind it. False: the stack cannot be read, so nothing will return; the load that faults here is what the
// program does next.
bool step_behind_return(Hit& hit, const Leaves& leaves) {
  Registers& registers = *hit.registers;
  const u64 sp = registers[shared::Reg::sp];
  u64 address = 0;
  if (!uprobe_peek8(sp + leaves.lead, &address)) return false;
  registers[shared::Reg::ip] = behind_stubs(address);  // who has come by a tail call may have one there
  for (u32 i = 0; leaves.restored != 0 && i < sizeof shared::kKeptRegisters; ++i) {
    const u32 word = shared::restored_at(leaves.restored, i);
    if (word != 0 && !uprobe_peek8(sp + 8 * (word - 1), &registers[shared::kKeptRegisters[i]])) return false;
  }
  registers[shared::Reg::sp] += leaves.moves;
  return true;
}

}  // namespace

// One call of feed(): it is inlined with all that a record takes, and the frame is the application's stack.
void handle_hit(Hit& hit) {
  EntryRecord noted;
  hit.noted = &noted;
  for (ConsumerKind kind = ConsumerKind::entry;; kind = ConsumerKind::exit) {
    const Leaves leaves = feed(hit, kind);
    if (kind == ConsumerKind::exit || leaves.moves == 0 || !step_behind_return(hit, leaves)) return;
  }
}

void handle_return(Hit& hit, ConsumerKind kind, u64 address) {
  EntryRecord noted;
  hit.noted = &noted;
  (*hit.registers)[shared::Reg::ip] = address;
  feed(hit, kind);
}

}  // namespace uprobe::agent
