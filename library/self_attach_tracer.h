// SPDX-License-Identifier: MIT
// Starts the self-attach tracer, the process that traces this one, since no process can trace itself
// (cli/self_attach_tracer.h). The program does not notice it: no child for wait(), no SIGCHLD, no descriptor but the socket.
#pragma once

#include <sys/types.h>

#include <string>

#include "engine/base/fd.h"
#include "library/uprobe/session.h"

namespace libuprobe {

struct SelfAttachTracer {
  uprobe::Fd socket;
  pid_t intermediate =
      0;  // a child that only wait4(intermediate, __WCLONE) sees, and that ends after the tracer; 0: none
};

// `thread`: the thread whose hits make no events, usually the caller. `callbacks`: as the tool takes them. Call it with signals blocked.
Result<SelfAttachTracer> start_self_attach_tracer(const Options& options, std::uint32_t thread,
                                                  const std::string& callbacks);

}  // namespace libuprobe
