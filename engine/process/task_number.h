// SPDX-License-Identifier: MIT
// Which numbers tasks have: in the tool's PID namespace, and in their own (engine/shared/task_number.h).
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

// A task as it is now.
struct SeenTask {
  shared::TaskNumber task;   // as its records name it
  std::uint32_t number = 0;  // in the tool's namespace
  std::string name;
  std::uint64_t ns = 0;  // when it was called so, by CLOCK_MONOTONIC
};
// The first thread of a process; of one in another namespace the first 256. Empty: the process has ended.
std::vector<SeenTask> tasks_of(pid_t pid);
// A thread whose records another one's block has named: that of a parent in whose memory it runs, or one that was copied from there.
std::optional<SeenTask> task_named_by(shared::TaskWords words, pid_t tid);

// What the agent of a process is to know of its number.
struct ProcessNumber {
  std::uint32_t own = 0;  // in the process's own namespace
  shared::TaskWords words{};
};
// Nothing: the process has ended.
std::optional<ProcessNumber> number_of(pid_t pid);
// Writes it into the head of a block that is being made, or taken over.
void name_process(shared::ProcessBlock& head, pid_t pid);
// Into the block of a child that waits for it.
Status tell_process(const target::ProcessFiles& files, Addr block);

// Tells the threads of the session's processes from strangers that have the same number here.
class TracedTasks {
 public:
  // The inode of the session's memory file: traced processes map it.
  explicit TracedTasks(ino_t area) : area_(area) {}
  // Whether the number means a thread of such a process, whose own PID namespace is another one than the tool's (`is_elsewhere`), or is
  // the tool's. What is known of a process holds for a second, that it is a stranger for a tenth, of one elsewhere not at all.
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
