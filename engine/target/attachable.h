// SPDX-License-Identifier: MIT
// Whether a running process can be attached to: all that can be known before it is touched.
#pragma once

#include <sys/types.h>

#include "engine/base/result.h"

namespace uprobe::target {

// Code::not_found: there is no such process; Code::refused, with the reason: it is there, and stays as it is. Retry::soon: another
// tool is at work there for a moment. `trusts_filters`: the user has said that its seccomp filters allow all that is needed.
Status check_attachable(pid_t pid, bool trusts_filters);

// Whether a process can be looked at without touching it: there is one, with a program whose file can be read.
Status check_readable(pid_t pid);

// Whether a process runs in its parent's memory: what is done to one of the two is done to both.
bool borrows_memory(pid_t pid);

// Code::refused where a child runs in the memory of this process. One of vfork, which soon calls execve, is waited for.
Status check_lending(pid_t pid);

// Whether a child runs in the memory of this process now.
bool lends_memory(pid_t pid);

// Whether a child of the thread runs in the memory of the process now; true if that is unknown. Waits for nothing.
bool may_lend_memory(pid_t pid, pid_t tid);

// How a container comes to be allowed to trace, for advice.
inline constexpr char kAllowPtrace[] =
    "docker: --cap-add=SYS_PTRACE; Kubernetes: securityContext.capabilities.add: [SYS_PTRACE]";

// Why ptrace said no to that process.
Error explain_refusal(pid_t pid, int error);

}  // namespace uprobe::target
