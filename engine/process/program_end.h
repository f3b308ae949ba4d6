// SPDX-License-Identifier: MIT
// The end of a program beside the tool (shared::kModeDaemonize): it waits, in its last system call, until its trace is complete.
#pragma once

#include <sys/types.h>

namespace uprobe::control {

// The process's own word, and about nothing but itself. False where it cannot be asked.
bool waits_at_its_end(pid_t pid);

}  // namespace uprobe::control
