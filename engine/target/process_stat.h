// SPDX-License-Identifier: MIT
// What /proc/PID/stat says, proc(5): everybody may read it of every process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace uprobe::target {

struct ProcessStat {
  std::string name;
  char state = 0;
  std::uint64_t flags = 0, threads = 0;
  std::uint64_t started = 0;  // after boot, in ticks
};

// Of the text; nothing: it is none.
std::optional<ProcessStat> parse_stat(std::string_view text);
// Nothing: there is no such process.
std::optional<ProcessStat> stat_of(pid_t pid);

bool is_kernel_thread(const ProcessStat& stat);
// How a thread has run until now: of its `stat` and `schedstat` files (Documentation/scheduler/sched-stats.rst).
struct ThreadRun {
  char state = 'X';
  std::uint64_t ran_ns = 0;  // on a processor
  std::uint64_t turns = 0;   // how often it was put on one; 0: this kernel does not count
};
// State X: there is no such thread.
ThreadRun run_of(pid_t pid, pid_t tid);

// Whether a thread of a process is the kernel's: it works in the process's memory, for io_uring or vhost, and executes none of its code. Its
// registers mean nothing.
bool is_kernels(const ProcessStat& thread);
bool is_kernels(pid_t pid, pid_t tid);

// A zombie, and not only its first thread.
bool has_ended(const ProcessStat& stat);
// The same of the process with this id, and true where there is none.
bool has_ended(pid_t pid);
// Whether one of its threads waits in the kernel in a way that a stop does not end: a parent in vfork, or for a disk.
bool has_thread_that_cannot_stop(pid_t pid);

}  // namespace uprobe::target
