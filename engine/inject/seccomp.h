// SPDX-License-Identifier: MIT
// Seccomp filters of the target, as far as they concern the agent.
#pragma once

#include <sys/types.h>

namespace uprobe::control {

// Whether a filter may kill the process for a system call that the agent makes of its own accord. A process that shares its
// filters with us (they are inherited, and can only be added to) and whose filters let a child of ours make these calls is
// safe: so it is in a container whose every process has the same filter.
bool may_be_killed_for_calls(pid_t pid);

}  // namespace uprobe::control
