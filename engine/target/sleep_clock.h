// SPDX-License-Identifier: MIT
// Since when a thread sleeps, and how long that is. The kernel tells it in /proc/PID/task/TID/sched (kernel/sched/debug.c), by the
// clock of the processor that the thread was on last; where it does not, nothing is known.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>

namespace uprobe::target {

struct Sleep {
  std::chrono::nanoseconds since;  // when it was on its processor last
  std::uint64_t switches;          // how often it has left one
  int processor;
};
std::optional<Sleep> sleep_of(pid_t pid, pid_t tid);

// From then to now, and never longer. The calling thread visits the processor; nothing: it may not.
std::optional<std::chrono::nanoseconds> time_since(const Sleep& sleep);

// The number of the system call that a thread waits in; -1: it waits in none, or that cannot be seen.
long call_under_way(pid_t pid, pid_t tid);

}  // namespace uprobe::target
