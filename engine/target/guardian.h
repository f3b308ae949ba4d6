// SPDX-License-Identifier: MIT
// A tool that is stopped by SIGSTOP must not keep a program stopped that it holds by ptrace. A process of its own, the guardian,
// continues the tool then. A tool that holds no program stays stopped. The guardian ends with the tool.
#pragma once

#include <sys/types.h>

namespace uprobe::target {

// Starts the guardian of this process; once, and while the process has one thread. Where no process can be had the tool works
// without it. `waiting`: a process that waits for this one until it executes another file; 0: there is none but children.
void start_guardian(pid_t waiting = 0);

}  // namespace uprobe::target
