// SPDX-License-Identifier: MIT
// Events that record a part of their hits: Event::one_in, per_second and min_latency.
//
// A call is chosen at its entry, by a lot that is drawn once for each hit: all events of the point that record one of the
// same number of calls choose the same calls. For an event at the return the choice is the entry record, which only a chosen
// call leaves: a return without one is left out. No state is kept, so threads, signal handlers and children of fork choose by
// themselves.
#pragma once

#include "preload/ring.h"

namespace uprobe::agent {

// At an entry: whether the consumer's event records the call that begins. Draws the hit's lot if that is wanted and there is
// none yet. A hit of the event itself that is left out is counted. No system call: a clock, and a mix of it.
bool choose(const Hit& hit, AreaHeader* area, const shared::Consumer& consumer);

// At a return, when hit.noted is what the entry has left: whether the event records it. One that is left out is counted.
bool is_kept(const Hit& hit, AreaHeader* area, const Event& event, u32 event_index);

// Takes one of the records that an event with a rate may have at the time of `tsc`: `ok` or `over_rate`. In the rseq section,
// which may restart: a turn is lost then, and the rate is kept.
Built take_turn(const RecordBuilder& builder, u64 tsc);

}  // namespace uprobe::agent
