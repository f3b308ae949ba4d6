// SPDX-License-Identifier: MIT
// Unwinders that ask for the object of an address. See unwinders.cpp.
#pragma once

#include "arch/entry/signal_frame.h"
#include "preload/agent.h"

namespace uprobe::agent {

// A thread is at the beginning of _dl_find_object(address, result). True: the address is the agent's, and the function has
// returned. False: it has to run.
bool find_object(const ProcessBlock& block, SignalFrame& frame);
// A thread is at the beginning of dl_iterate_phdr(callback, data). True: an unwinder that looks for a stub has called it, and
// the thread goes on in uprobe_iterate, which shows the callback the agent before the function runs.
bool iterate_objects(const Point& point, SignalFrame& frame);
// Whether the address is in uprobe_iterate: the program's callback may run on top of it.
bool in_iterate(u64 address);

}  // namespace uprobe::agent
