// SPDX-License-Identifier: MIT
// What the mail service has seen of tasks, for the thread that reads the rings: a short-lived process may be gone when its records are
// read. While the output is blocked it is not taken: then what comes last is dropped.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/process/task_number.h"
#include "engine/service/seen_exec.h"

namespace uprobe::control {

// Threads may share it.
class SeenTasks {
 public:
  void add(std::vector<SeenTask> tasks) {
    const std::lock_guard lock(lock_);
    for (SeenTask& task : tasks)
      if (names_.size() < kMost) names_.push_back(std::move(task));
  }
  void add(SeenExec exec) {
    const std::lock_guard lock(lock_);
    if (execs_.size() < kMost) execs_.push_back(std::move(exec));
  }
  // Those that have come since the last call.
  std::vector<SeenTask> take_names() {
    const std::lock_guard lock(lock_);
    return std::exchange(names_, {});
  }
  std::vector<SeenExec> take_execs() {
    const std::lock_guard lock(lock_);
    return std::exchange(execs_, {});
  }

 private:
  static constexpr std::size_t kMost = 4096;

  std::mutex lock_;
  std::vector<SeenTask> names_;
  std::vector<SeenExec> execs_;
};

}  // namespace uprobe::control
