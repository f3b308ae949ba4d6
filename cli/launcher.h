// SPDX-License-Identifier: MIT
// Attaching is done by two processes, so that nothing that happens to the tool interrupts work on another program's memory:
//
//   launcher    what was called: passes signals on, waits for the engine, ends as it has ended. It does nothing else
//   engine   a child in a session of its own and with a name of its own, so that what is meant for the tool (a terminal's
//            signals, kill of a process group, killall) does not hit it: attaches, reads, prints, detaches
//
// An engine that has clients (engine/ipc/peer_protocol.h) outlives its launcher: it tells it how to end, and goes on until the last
// client has gone. When the launcher dies, by SIGKILL too, the engine finishes what it is doing, detaches as it always does, and exits. When the engine
// is killed the launcher takes away what it has left. ^Z stops the launcher, and the engine stops reading; it is never stopped itself,
// since it may hold a program.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/engine.h"
#include "cli/output.h"
#include "cli/signals.h"

namespace uprobe::cli {

// Returns nothing where the caller goes on: in the engine, and in every call that attaches to nothing. In the launcher it returns
// when the engine has ended: how to end. `words`: the arguments where the kernel has put them; those of the engine show its name
// instead (ps, pkill -f).
std::optional<Outcome> run_as_launcher(const std::vector<std::string>& arguments, char** words, Engine& engine,
                                       const Streams& streams);

// In the engine: the launcher ends as this says, whoever waits for it goes on, and the engine is nobody's. It has no standard
// streams from then on. Nothing where there is no launcher.
void leave_launcher(const Outcome& outcome);

// The process id that the user knows us by: the launcher's, or our own where there is none.
int visible_pid();

}  // namespace uprobe::cli
