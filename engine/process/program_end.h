// SPDX-License-Identifier: MIT
// The end of a program that is not the tool's child (shared::kModeDaemonize): it waits, in its last system call, until its
// trace is complete.
#pragma once

#include <sys/types.h>

namespace uprobe::control {

// As the process itself reports, which concerns nothing but the process. False where it cannot be asked.
bool waits_at_its_end(pid_t pid);

}  // namespace uprobe::control
