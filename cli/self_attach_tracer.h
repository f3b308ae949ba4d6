// SPDX-License-Identifier: MIT
// The tool as the attendant of a process that attaches to itself (library/uprobe/session.h): nobody can trace its own process, so
// the library starts `uprobe-run --attend ...`, which does what `uprobe-run -P` does and sends back what it reads. What the two
// say: engine/ipc/self_attach_protocol.h.
//
// Two threads: one runs the session, one has the socket. Whoever holds the process waits for no socket; records that the process
// does not take wait in memory, of which there is a limit. It ends with the process, with its socket, and as told.
#pragma once

namespace uprobe::cli {

bool is_self_attach_tracer_call(int argc, char** argv);

// Returns the exit code, which nobody waits for.
int run_self_attach_tracer(char** argv);

}  // namespace uprobe::cli
