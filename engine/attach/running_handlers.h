// SPDX-License-Identifier: MIT
// Signal handlers of the program that are running while a tool attaches to it.
#pragma once

#include "engine/process/block.h"
#include "engine/target/stopped_process.h"

namespace uprobe::control {

// The agent has to see each return from a signal handler, because the thread's mask changes then. Where no internal point is on
// that return path (preload/returns.cpp), the agent makes handlers that it enters return through itself. This does the same for
// handlers that run already: in their frames it replaces the restorer by the agent's visible restorer. For a process that is
// attached and armed.
Status lead_handlers_back(target::StoppedProcess& process, Block& block);

}  // namespace uprobe::control
