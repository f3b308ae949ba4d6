// SPDX-License-Identifier: MIT
// The tool as the self-attach tracer of a process that attaches to itself (library/uprobe/session.h). No process can trace
// itself, so the library starts `uprobe-run --attend ...`, which does the work of `uprobe-run -P` and sends back what it reads.
// The messages are in engine/ipc/self_attach_protocol.h.
//
// Two threads: one runs the session, one has the socket. The one that stops the process never waits for the socket; records
// that the process does not take wait in memory, up to a limit. The tracer ends with the process, with its socket, or on
// request.
#pragma once

namespace uprobe::cli {

bool is_self_attach_tracer_call(int argc, char** argv);

// Returns the exit code, for which no process waits.
int run_self_attach_tracer(char** argv);

}  // namespace uprobe::cli
