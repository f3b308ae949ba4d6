// Unwinders that ask where code belongs. See unwinders.cpp.
#pragma once

#include "arch/x86/entry/signal_frame.h"
#include "preload/agent.h"

namespace uprobe::agent {

// A thread is at the beginning of _dl_find_object(address, result). True: the address is the agent's, and the function has
// returned. False: it shall run.
bool find_object(const ProcessBlock& block, SignalFrame& frame);

}  // namespace uprobe::agent
