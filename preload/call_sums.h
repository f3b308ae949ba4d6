// SPDX-License-Identifier: MIT
// Calls of events that sum them up (Event::sum): they are counted and timed here, and nothing is recorded.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// No trigger wants to see its hits.
inline bool is_summed_alone(const Event& event) { return event.sum != 0 && event.trigger_count == 0; }

// The function begins at the hit: counts the call, unless the event is off.
void count_call(const Hit& hit, AreaHeader* area, const Event& event);
// The same, and keeps when it began for its return.
void begin_call(const Hit& hit, AreaHeader* area, const Event& event, u32 event_index);
// The call returns: `slot` held its return address. Adds it to its sums, and fills in hit.noted, if its beginning is known; else
// counts it as untimed.
void end_call(const Hit& hit, AreaHeader* area, const Event& event, u32 event_index, u64 slot);
// The return of a call will not be seen, which the event's counts say already: the sums of the process say it too.
void miss_return(AreaHeader* area, const Event& event);

// Handles a hit by jump at a point that sums up the calls of one function, and does nothing else. False: it is another point, and
// nothing has been done.
bool sum_alone(Hit& hit);

}  // namespace uprobe::agent
