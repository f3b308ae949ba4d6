// SPDX-License-Identifier: MIT
// The seccomp filters of a process, as far as the tool can see and move them from outside.
#pragma once

#include <sys/types.h>

#include <string>

#include "engine/base/result.h"

namespace uprobe::target {

// Whether a thread is under filters, or in the strict mode; true if that is unknown.
bool is_filtered(pid_t pid, pid_t tid);
// The same by the text of its `status` file.
bool shows_filters(const Result<std::string>& status);
// Whether it is in the strict mode, which allows next to no call.
bool is_in_strict_mode(pid_t pid, pid_t tid);

// Whether this process may suspend and read the filters of a thread that it has stopped: it has CAP_SYS_ADMIN in the first user
// namespace and is under no filter itself (kernel/ptrace.c, check_ptrace_options). Found out once, on a child.
bool can_suspend_filters();

// Of a thread that this process traces and has stopped: its system calls pass no filter, or pass them again. The kernel ends the
// suspension when the tracer lets go or dies.
Status suspend_filters(pid_t tid, bool suspended);

// Whether a process is under as many filters as this one: they are the same ones if it descends from this one.
bool has_as_many_filters_as_we(pid_t pid);
// Whether it can be shown that a thread is under the filters that this process is under: both have as many, and the process from
// which both descend has as many too. Filters are inherited and never removed.
bool shares_our_filters(pid_t pid, pid_t tid);

}  // namespace uprobe::target
