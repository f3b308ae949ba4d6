// SPDX-License-Identifier: MIT
// Finds the id in the tool's PID namespace of a thread of another PID namespace, in /proc, where each task shows its id in its
// own (NSpid of /proc/PID/task/TID/status, proc(5)).
//
// The ids to look for come from a target. So nothing is read of processes that are not traced, and the search takes at most a
// fifth of the time, 20 ms at once: an id that cannot be looked up now is looked up later.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/shared/task_number.h"

namespace uprobe::trace {

class TaskNumbers {
 public:
  // `is_traced`: whether a process is traced; null: all are.
  TaskNumbers(std::string proc, std::function<bool(std::uint32_t process)> is_traced);

  struct Found {
    bool has_looked;       // false: there was no time
    std::uint32_t number;  // 0: there is no such task
  };
  // Finds a thread of the process, or else of a process that it has started.
  Found find(const shared::TaskNumber& task);

 private:
  struct Own {
    std::uint32_t number = 0;
    std::size_t depth = 0;  // of the namespace to which the id belongs
  };
  using Threads = std::unordered_map<std::uint32_t, std::uint32_t>;  // id here -> own id

  std::uint32_t look_for(const shared::TaskNumber& task);
  std::uint32_t thread_of(std::uint32_t process, std::uint32_t own);
  std::uint32_t thread_below(std::uint32_t process, std::uint32_t own);
  std::vector<std::uint32_t> children_of(std::uint32_t process);
  Own own_number(std::uint32_t process, std::uint32_t thread);
  std::string folder(std::uint32_t process) const { return proc_ + "/" + std::to_string(process) + "/task"; }
  void read_threads(std::uint32_t process, Threads& known);
  bool may_read() { return reads_left_ != 0 && reads_left_-- != 0; }

  std::string proc_;
  std::function<bool(std::uint32_t)> is_traced_;
  std::unordered_map<std::uint32_t, Threads> threads_;  // by process
  unsigned reads_left_ = 0;                             // in this look
  std::uint64_t left_ns_ = 0, last_ns_ = 0;             // time left to spend, and when that was computed
};

}  // namespace uprobe::trace
