// SPDX-License-Identifier: MIT
// How much memory a process may still take before the kernel looks for one to kill.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace uprobe::control {

// The memory cgroup of /proc/PID/cgroup (cgroups(7)); empty: it has none, or none that this process can name.
struct MemoryGroup {
  bool is_first_version = false;  // cgroup v1: a hierarchy for memory alone
  std::string path;               // from the root that this process sees; "/": that one
};
std::optional<MemoryGroup> memory_group(std::string_view proc_cgroup);

// The least that is left in the group or in one above it. `root`: where the hierarchy is mounted. Nothing: none of them has a
// limit. 0: the group cannot be looked at.
std::optional<std::uint64_t> left_in(const MemoryGroup& group, const std::string& root);

// Whether the process may touch `bytes` of fresh shared memory and cannot fail, nor come near a limit: that is a sixteenth of what
// its cgroup and the machine have left. False also where that cannot be found out, and where the kernel promises no more memory than
// it has (vm.overcommit_memory), because a page that is refused is a SIGBUS. The answer is that of one moment.
bool has_memory_for(pid_t pid, std::uint64_t bytes);

}  // namespace uprobe::control
