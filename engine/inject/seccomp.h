// SPDX-License-Identifier: MIT
// The target's seccomp filters, as far as they concern the agent.
#pragma once

#include <sys/types.h>

namespace uprobe::control {

// Whether a filter may kill the process for a system call that the agent makes on its own. A process is safe if it has the same
// filters as the tool (filters are inherited and can only be added to) and they let a child of the tool make these calls. That
// is so in a container where every process has the same filter.
bool may_be_killed_for_calls(pid_t pid);

}  // namespace uprobe::control
