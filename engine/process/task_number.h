// Which numbers tasks have: in the tool's PID namespace, and in their own. Records have the latter, which is all that the agent knows.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace uprobe::control {

// A task as it is now.
struct SeenTask {
  std::uint32_t own = 0;    // its number in its own PID namespace, the innermost
  std::uint64_t space = 0;  // which that is; 0: the tool's
  std::string name;
  std::uint64_t ns = 0;  // when it was called so, by CLOCK_MONOTONIC
};
// The first thread of a process; of one in another namespace the first 256. Empty: the process has ended.
std::vector<SeenTask> tasks_of(pid_t pid);

// Tells the threads of the session's processes from strangers that have the same number here.
class TracedTasks {
 public:
  // The inode of the session's memory file: traced processes map it.
  explicit TracedTasks(ino_t area) : area_(area) {}
  // Whether the number means a thread of such a process, in the tool's PID namespace and its own. What is known of a process holds
  // for a second, that it is a stranger for a tenth.
  bool has(std::uint32_t tid);

 private:
  struct Known {
    std::uint64_t until;
    bool is_traced;
  };
  ino_t area_;
  std::unordered_map<pid_t, Known> processes_;
};

}  // namespace uprobe::control
