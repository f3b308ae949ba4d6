// SPDX-License-Identifier: MIT
// Lets a stopped process open a few descriptors for the tool even if it is at its limit: raises the limit until this object
// ends. Where the tool may not raise it, opening a file there fails with its own error.
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
