// SPDX-License-Identifier: MIT
// -D: the process that was called becomes the program, so that its parent, its terminal and job control see no other. Before that
// it starts the tool, and waits for its word:
//
//   called --clone--> between --fork--> the tool: plans, traces the first one's execve, reads, prints
//
// The tool is no child of the program: the process between ends at once, and the kernel finds the tool another parent. A subreaper
// would be that parent itself: it is none for the moment. Process 1 of a PID namespace always is: there the process between stays,
// with an exit signal of 0, so that only a wait with __WALL or __WCLONE sees it, and takes the tool's orphans. What the called process
// waits for on the way leaves neither a signal nor a time in what it will be able to ask about its children.
//
// Until the tool has the files that it writes it is in the session and the process group of the program: it may open the terminal, and
// ^C ends both.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/output.h"
#include "cli/signals.h"
#include "engine/types.h"

namespace uprobe::cli {

// Returns nothing where the caller goes on: in the tool, and in every call without -D. In the process that waits it returns only when
// there is to be no program: how to end.
std::optional<Outcome> run_daemonized(const std::vector<std::string>& arguments, const Streams& streams);

// In the tool, the process that waits; elsewhere there is none (pid 0).
WaitingProcess waiting_process();

// The tool keeps standard error alone of all that it has been given: a reader of the program's output waits for the program. It has a
// session of its own, without a terminal.
void step_aside();
// Nor that.
void fall_silent();

// Why the program's children cannot be followed everywhere; empty: they can.
std::string restriction_on_children();

// There is no program: the process that waits, if it still does, ends so.
void dismiss_waiting(const Outcome& outcome);

}  // namespace uprobe::cli
