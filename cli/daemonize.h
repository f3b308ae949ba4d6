// SPDX-License-Identifier: MIT
// -D: the called process becomes the program, so that its parent, its terminal and job control see no other process. Before
// that it starts the tool, and waits for the tool's order:
//
//   called --clone--> intermediate --fork--> the tool: plans, traces the execve of the called process, reads, prints
//
// The tool is not a child of the program: the intermediate process ends at once, and the kernel gives the tool another parent.
// A subreaper would be that parent itself, so the called process stops being one for that moment. Process 1 of a PID namespace
// always is one: there the intermediate process stays, with exit signal 0, so that only a wait with __WALL or __WCLONE sees it,
// and takes the tool's orphans. The children for which the called process waits on the way leave neither a signal nor a time
// that it could later notice.
//
// Until the tool has opened its output files it stays in the session and the process group of the program: it may open the
// terminal, and ^C ends both.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/output.h"
#include "cli/signals.h"
#include "engine/types.h"

namespace uprobe::cli {

// Returns nothing where the caller goes on: in the tool, and in every call without -D. In the called process it returns only
// when there will be no program, and says how to end.
std::optional<Outcome> run_daemonized(const std::vector<std::string>& arguments, const Streams& streams);

// In the tool, the called process that waits; elsewhere none (pid 0).
WaitingProcess waiting_process();

// The tool closes all that it was given except standard error, because a reader of the program's output waits for the end of
// that output. It gets a session of its own, without a terminal.
void step_aside();
// Gives up standard error as well.
void fall_silent();

// Why the program's children cannot be followed everywhere; empty: they can.
std::string restriction_on_children();

// There will be no program: the waiting process, if it still waits, ends with this outcome.
void dismiss_waiting(const Outcome& outcome);

}  // namespace uprobe::cli
