// SPDX-License-Identifier: MIT
// Handlers of a program that run while a tool attaches to it.
#pragma once

#include "engine/process/block.h"
#include "engine/target/stopped_process.h"

namespace uprobe::control {

// When a thread comes back from a handler the agent has to see it, since its mask becomes another one. Where no point stands in the
// way back (preload/returns.cpp), handlers that the agent enters are led back by way of it; those that run already are here: in
// their frames the agent's visible restorer takes the place of their own. For a process that has been attached to and armed.
Status lead_handlers_back(target::StoppedProcess& process, Block& block);

}  // namespace uprobe::control
