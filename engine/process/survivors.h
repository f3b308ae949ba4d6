// SPDX-License-Identifier: MIT
// The traced processes that are left after the first ones have ended, where the session stays for them (--until=last).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

#include "engine/base/fd.h"

namespace uprobe::control {

class Survivors {
 public:
  // `area`: the inode of the session's memory file. `is_following`: whether a process is in an execve whose new program is not
  // loaded yet; such a process belongs to the session although it does not map the file.
  Survivors(ino_t area, std::function<bool()> is_following) : area_(area), is_following_(std::move(is_following)) {}

  // Whether none is left. Waits at most `limit` for the end of the known ones.
  bool have_ended(std::chrono::microseconds limit);
  // How many there were at the last look at all processes.
  std::size_t count() const { return count_; }

 private:
  struct Known {
    pid_t pid;
    Fd handle;
  };
  bool is_gone(const Known& process, std::chrono::microseconds limit);
  bool find();

  ino_t area_;
  std::function<bool()> is_following_;
  std::vector<Known> known_;  // a few of them
  std::size_t count_ = 0;
  int empty_looks_ = 0;
  std::chrono::steady_clock::time_point next_check_{};
};

}  // namespace uprobe::control
