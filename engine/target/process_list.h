// SPDX-License-Identifier: MIT
// Which processes /proc shows, and what the kernel calls them in their PID namespaces.
#pragma once

#include <sys/types.h>

#include <string_view>
#include <unordered_map>
#include <vector>

namespace uprobe::target {

struct ProcessEntry {
  pid_t pid;
  ino_t entry;  // of its folder: another process with the same id has another one
};

// All that /proc shows; empty: it cannot be read.
std::vector<ProcessEntry> list_processes();

// The processes of one moment, to be left out of later looks at all processes.
class EarlierProcesses {
 public:
  EarlierProcesses() = default;  // none
  static EarlierProcesses now();
  void leave_out(pid_t pid) { entries_.erase(pid); }
  // False for another process that has taken over the id, and for one that the kernel has forgotten and found again.
  bool has(const ProcessEntry& process) const;

 private:
  std::unordered_map<pid_t, ino_t> entries_;
};

// What the threads of a process have started and has not been left to another one. Empty also where the kernel does not tell
// (CONFIG_PROC_CHILDREN).
std::vector<pid_t> children_of(pid_t pid);

// The ids of a task in each PID namespace that it is in, from the reader's inwards: of the text of its `status` file the line
// "NSpid:\tOUTER\t...\tINNER" (proc(5)). Empty: there is no such line.
std::vector<pid_t> namespace_ids(std::string_view status);
// The same for a thread of a process. Empty: it has ended.
std::vector<pid_t> ids_of_thread(pid_t pid, pid_t tid);
// The thread of the process whose id in its own namespace is `inner`; 0: there is none.
pid_t thread_called(pid_t pid, pid_t inner);

}  // namespace uprobe::target
