// SPDX-License-Identifier: MIT
// Self times: the time of a call without that of the probed calls inside it.
//
// Each thread has a sum for each session: the self times of its calls that have returned. While a call is under way, the sum
// grows by the time of the probed calls inside it, whatever their depth: so the entry record keeps the sum as it was, and the
// return subtracts.
//
//   left by longjmp, exceptions     a call without a return adds nothing: its time is its caller's
//   coroutines                      the sum may grow by more than the call took: its self time is not known
//   a return in another thread      the same, or the other thread's sum is smaller: not known
//   more threads than the table has the self times of the others are not known
//   a return whose time is not known the same of all calls around it
//
// No lock and no system call; a thread's sum is changed by its own hits, and by those of its signal handlers.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

inline constexpr u64 kNoSum = ~u64{0};

// The sum of the thread, for an entry record; kNoSum: it has none.
u64 finished_inside(const AreaHeader& area, u32 tid);

// Of a call that returns after `nanoseconds`, and began when the sum was `inside`: sets `self`, and adds it to the sum. False: it is
// not known, and nothing is changed.
bool add_finished(const AreaHeader& area, u32 tid, u64 inside, u64 nanoseconds, u64& self);
// Of a call that returns after a time that is not known.
void add_unknown(const AreaHeader& area, u32 tid);

}  // namespace uprobe::agent
