// SPDX-License-Identifier: MIT
// The ids of tasks: in the tool's PID namespace, and in the tasks' own (engine/shared/task_number.h).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/base/address.h"
#include "engine/base/result.h"
#include "engine/shared/process_block.h"
#include "engine/shared/task_number.h"
#include "engine/target/target.h"

namespace uprobe::control {

// A task at one moment.
struct SeenTask {
  shared::TaskNumber task;                // the id in its records
  std::uint32_t number = 0, process = 0;  // its id and its process's in the tool's namespace
  std::string name;
  std::uint64_t ns = 0;  // when it had this name, by CLOCK_MONOTONIC
};
// The first thread of a process; for a process in another namespace the first 256 threads. Empty: the process has ended.
std::vector<SeenTask> tasks_of(pid_t pid);
// `status`: the text of its status file, where that is known.
std::vector<SeenTask> tasks_of(pid_t pid, const Result<std::string>& status);
// The thread whose records use the ids in another thread's block: a child that runs in its parent's memory, or was copied from
// there.
std::optional<SeenTask> task_named_by(shared::TaskWords words, pid_t tid);

// The ids that the agent of a process needs to know.
struct ProcessNumber {
  std::uint32_t own = 0;  // in the process's own namespace
  shared::TaskWords words{};
};
// Nothing: the process has ended.
std::optional<ProcessNumber> number_of(pid_t pid);
// Writes the ids into the head of a block that is being made or taken over.
void name_process(shared::ProcessBlock& head, pid_t pid);
void name_process(shared::ProcessBlock& head, pid_t pid, const Result<std::string>& status);
// Writes them into the block of a child that waits for it.
Status tell_process(const target::ProcessFiles& files, Addr block);

// Tells the threads of the session's processes from other threads that have the same ids here.
class TracedTasks {
 public:
  // `area`: the inode of the session's memory file, which traced processes map.
  explicit TracedTasks(ino_t area) : area_(area) {}
  // Whether the id means a thread of a traced process in the tool's PID namespace, or in another one (`is_elsewhere`). A
  // positive answer is cached for a second, a negative one for a tenth of a second, answers about other namespaces not at all.
  bool has(std::uint32_t tid, bool is_elsewhere);

 private:
  struct Known {
    std::uint64_t until;
    bool is_traced;
  };
  ino_t area_;
  std::unordered_map<pid_t, Known> processes_;
};

}  // namespace uprobe::control
