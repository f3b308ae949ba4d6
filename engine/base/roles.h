// SPDX-License-Identifier: MIT
// The two processes of an attached session: the front, which was called and has the user's signals, and the engine, which it has
// started and which does all the work. Others know them by these names of theirs (comm).
#pragma once

#include <sys/types.h>

namespace uprobe {

inline constexpr const char* kLauncherName = "uprobe-run";
inline constexpr const char* kEngineName = "uprobe-engine";
inline constexpr const char* kGuardianName = "uprobe-guardian";  // engine/target/guardian.h

bool is_engine(pid_t pid);

// Whether it is one of us, of either name: what such a process holds by ptrace it lets go in a moment.
bool is_of_ours(pid_t pid);

// 0: it has gone, and the engine is about to end.
pid_t front_of(pid_t engine);

}  // namespace uprobe
