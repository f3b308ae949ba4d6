// SPDX-License-Identifier: MIT
// The end of a program. One that is not the tool's child (shared::kModeDaemonize) waits, in its last system call, until its
// trace is complete.
#pragma once

#include <sys/types.h>

#include <chrono>

namespace uprobe::control {

// As the process itself reports, which concerns nothing but the process. False where it cannot be asked.
bool waits_at_its_end(pid_t pid);

// Whether the process of the pidfd has ended. Waits for that at most `limit`.
bool has_ended(int pidfd, std::chrono::microseconds limit);

}  // namespace uprobe::control
