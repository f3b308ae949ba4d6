// A hit: the consumers of a point, newest first; those of a return behind the others.
#include "preload/agent.h"

namespace uprobe::agent {
namespace {

using shared::Consumer;
using shared::ConsumerKind;

bool is(const Consumer& consumer, ConsumerKind kind) { return consumer.kind == static_cast<u8>(kind); }

// The consumers of one kind. Returns what the return at the point takes from the stack; 0: nobody wants to know of one.
inline u32 feed(Hit& hit, ConsumerKind kind) {
  u32 pops = 0;
  each_consumer(*hit.block, *hit.point, [&](const Consumer& consumer) {
    if (is(consumer, ConsumerKind::exit)) pops = consumer.pops;
    if (!is(consumer, kind)) return;
    hit.function = hit.point->address - static_cast<u64>(i64{consumer.distance});
    AreaHeader* area = session_area(*hit.block, consumer.session);
    if (area != nullptr) record_event(hit, area, consumer.event);
  });
  return pops;
}

// What stands at the point is a return, or a jump in whose stead somebody else returns: the registers become those behind it.
// False: the stack cannot be read, so nothing will return; the load that faults here is what the program does next.
bool step_behind_return(Hit& hit, u32 pops) {
  Registers& registers = *hit.registers;
  if (!uprobe_peek8(registers[shared::Reg::sp], &registers[shared::Reg::ip])) return false;
  registers[shared::Reg::sp] += pops;
  return true;
}

}  // namespace

// One call of feed(): it is inlined with all that a record takes, and the frame is the application's stack.
void handle_hit(Hit& hit) {
  for (ConsumerKind kind = ConsumerKind::entry;; kind = ConsumerKind::exit) {
    const u32 pops = feed(hit, kind);
    if (kind == ConsumerKind::exit || pops == 0 || !step_behind_return(hit, pops)) return;
  }
}

void handle_return(Hit& hit, ConsumerKind kind, u64 address) {
  (*hit.registers)[shared::Reg::ip] = address;
  feed(hit, kind);
}

}  // namespace uprobe::agent
