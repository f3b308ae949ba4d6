// SPDX-License-Identifier: MIT
// Starts the attendant: the process that does to this one what no process can do to itself (cli/self_attach_tracer.h). The program does not
// see it: no child for wait(), no SIGCHLD, no descriptor but the socket.
#pragma once

#include <sys/types.h>

#include <string>

#include "engine/base/fd.h"
#include "library/uprobe/session.h"

namespace libuprobe {

struct Attendant {
  uprobe::Fd socket;
  pid_t between = 0;  // a child that only wait4(between, __WCLONE) sees, and that ends after the attendant; 0: none
};

// `thread`: the one that makes no events, as a rule the caller. To be called with signals blocked.
Result<Attendant> start_self_attach_tracer(const Options& options, std::uint32_t thread);

}  // namespace libuprobe
