// SPDX-License-Identifier: MIT
// Attaching takes two processes, so that no event in the tool's own environment interrupts its work on another program's
// memory:
//
//   launcher  the called process: passes signals on, waits for the tracer, ends as the tracer has ended, and does nothing else
//   tracer    a child in a session of its own and with a name of its own, so that signals meant for the tool (from a terminal,
//             kill of a process group, killall) do not hit it: attaches, reads, prints, detaches
//
// A tracer that has clients (engine/ipc/peer_protocol.h) outlives its launcher: it tells the launcher how to end, and goes on
// until its last client has left. When the launcher dies, by SIGKILL too, the tracer finishes its present step, detaches as
// usual, and exits. When the tracer is killed the launcher removes its probes. ^Z stops the launcher, and the tracer stops
// reading; the tracer itself is never stopped, since it may hold a program.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/engine.h"
#include "cli/output.h"
#include "cli/signals.h"

namespace uprobe::cli {

// Returns nothing where the caller goes on: in the tracer, and in every call that attaches to nothing. In the launcher it
// returns how to end, when the tracer has ended. `words`: the arguments at the kernel's place; in the tracer they show its name
// instead (ps, pkill -f).
std::optional<Outcome> run_as_launcher(const std::vector<std::string>& arguments, char** words, Engine& engine,
                                       const Streams& streams);

// In the tracer: the launcher ends with this outcome, so that its caller goes on, and the tracer continues alone, without
// standard streams. Does nothing where there is no launcher.
void leave_launcher(const Outcome& outcome);

// In the tracer: whether it has the terminal, which the launcher gets back before it stops.
void tell_of_terminal(bool is_taken);

// The process id by which the user knows the tool: the launcher's, or this process's own if there is no launcher.
int visible_pid();

}  // namespace uprobe::cli
