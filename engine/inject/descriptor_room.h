// SPDX-License-Identifier: MIT
// A process that has as many descriptors open as it may gets room for ours while all of its threads are held: its limit is higher
// until this object ends. Where we may not raise it, opening a file there fails, and says why.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

namespace uprobe::control {

class DescriptorRoom {
 public:
  explicit DescriptorRoom(pid_t pid);
  ~DescriptorRoom();
  DescriptorRoom(const DescriptorRoom&) = delete;
  DescriptorRoom& operator=(const DescriptorRoom&) = delete;

 private:
  pid_t pid_;
  rlimit before_{};
  bool is_raised_ = false;
};

}  // namespace uprobe::control
