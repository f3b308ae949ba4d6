// SPDX-License-Identifier: MIT
// The two processes of an attached session: the launcher, which the user has started and which has the user's signals, and the
// tracer, which the launcher has started and which does all the work. Other tools know them by their names (comm).
#pragma once

#include <sys/types.h>

namespace uprobe {

inline constexpr const char* kLauncherName = "uprobe-run";
inline constexpr const char* kTracerName = "uprobe-engine";
inline constexpr const char* kGuardianName = "uprobe-guardian";  // engine/target/guardian.h
inline constexpr const char* kProxyName = "uprobe-proxy";        // engine/proxy/proxy.h

bool is_tracer(pid_t pid);

// A process of the tool's that makes system calls in its place: it has the tool's memory, and may outlive it.
bool is_proxy(pid_t pid);

// Whether the process is the tool, by either name: a process that it holds by ptrace is free again in a moment.
bool is_tool_process(pid_t pid);

// 0: the launcher has ended, and the tracer is about to end.
pid_t launcher_of(pid_t tracer);

}  // namespace uprobe
