// SPDX-License-Identifier: MIT
// A hit: calls the consumers of a point, newest first; those of a return after the others.
#include "preload/actions.h"
#include "preload/after_return.h"
#include "preload/agent.h"
#include "preload/call_sums.h"
#include "preload/stubs.h"
#include "preload/thinning.h"

namespace uprobe::agent {
namespace {

using shared::Consumer;
using shared::ConsumerKind;

// For a return by a stub the bytes popped after the address are unknown: if there are any, the entry record is not found.
u32 popped_by(const Consumer& consumer) {
  return consumer.kind == static_cast<u8>(ConsumerKind::exit) ? consumer.pops : u32{sizeof(u64)};
}

bool is(const Consumer& consumer, ConsumerKind kind) { return consumer.kind == static_cast<u8>(kind); }

// Whether an entry is recorded for a consumer of the return. If a function is reached again by tail calls before its first call
// has returned, it is not: stub and entry record are those of the first call.
[[gnu::noinline]] bool notes_now(const Hit& hit, const AreaHeader* area, const Consumer& consumer) {
  if (is(consumer, ConsumerKind::note)) return true;
  if (!is(consumer, ConsumerKind::stub) || noting_event(area, consumer.event) == nullptr) return false;
  return !hit.may_fault || !is_under_way(*hit.block, *hit.point, (*hit.registers)[shared::Reg::sp]);
}

// A call that a stub cannot follow, because the same function's first call has not returned, is a call.
[[gnu::noinline]] void count_if_summed(const Hit& hit, AreaHeader* area, const Consumer& consumer) {
  const Event* const event = is(consumer, ConsumerKind::stub) ? noting_event(area, consumer.event) : nullptr;
  if (event != nullptr && event->sum != 0) count_call(hit, area, *event);
}

// Calls the consumers of one kind.
inline Leaves feed(Hit& hit, ConsumerKind kind) {
  Leaves leaves{0, 0, 0};
  each_consumer(*hit.block, *hit.point, [&](const Consumer& consumer) {
    if (is(consumer, ConsumerKind::exit))
      leaves = {consumer.lead, u32{consumer.lead} + consumer.pops, consumer.restored};
    AreaHeader* area = session_area(*hit.block, consumer.session);
    if (area == nullptr) return;
    bool is_wanted = kind != ConsumerKind::entry || choose(hit, area, consumer);
    if (kind == ConsumerKind::entry && !is_overridden(hit)) {
      if (notes_now(hit, area, consumer))
        note_entry(hit, area, consumer.event, is_wanted);
      else
        count_if_summed(hit, area, consumer);
    }
    if (!is(consumer, kind)) return;
    hit.function = hit.point->address - static_cast<u64>(i64{consumer.distance});
    if (kind != ConsumerKind::entry)
      is_wanted = take_entry(hit, area, consumer.event, (*hit.registers)[shared::Reg::sp] - popped_by(consumer));
    if (hit.can_change) prepare_change(hit, area, consumer);
    if (!is_wanted) [[unlikely]]
      return;
    record_event(hit, area, consumer.event);
  });
  return leaves;
}

// A function that is not to run has no return: that is decided before anything is kept for one.
[[gnu::noinline]] void decide_at_entry(Hit& hit) {
  each_consumer(*hit.block, *hit.point, [&](const Consumer& consumer) {
    AreaHeader* area = session_area(*hit.block, consumer.session);
    if (area != nullptr && is(consumer, ConsumerKind::entry)) decide_change(hit, area, consumer);
  });
}

}  // namespace

// One call of feed(): it is inlined together with all recording, and the stack is the application's.
void handle_hit(Hit& hit) {
  EntryRecord noted;
  hit.noted = &noted, noted.lot = 0;
  if (hit.can_change) decide_at_entry(hit);
  for (ConsumerKind kind = ConsumerKind::entry;; kind = ConsumerKind::exit) {
    const Leaves leaves = feed(hit, kind);
    if (kind == ConsumerKind::exit || leaves.moves == 0 || is_overridden(hit) || !step_after_return(hit, leaves)) break;
  }
  if (hit.block->semaphore_count != 0) watch_tool(hit);
}

void handle_return(Hit& hit, ConsumerKind kind, u64 address) {
  EntryRecord noted;
  hit.noted = &noted, noted.lot = 0;
  (*hit.registers)[shared::Reg::ip] = address;
  feed(hit, kind);
}

}  // namespace uprobe::agent
