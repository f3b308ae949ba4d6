// SPDX-License-Identifier: MIT
// Room for memory that the kernel locks at once, as in a process that has called mlockall(MCL_FUTURE), even where the stopped process is
// at its limit: its soft limit is as high as its hard one until this object ends, and no limit where the tool may set that. Where there is
// no room all the same, a mapping fails with its own error.
#pragma once

#include <sys/resource.h>

#include "engine/target/target.h"

namespace uprobe::control {

class LockedMemoryRoom {
 public:
  // `scratch`: two words of the process's memory that are not used now. Both must outlive it.
  LockedMemoryRoom(target::Target& target, Addr scratch);
  ~LockedMemoryRoom();
  LockedMemoryRoom(const LockedMemoryRoom&) = delete;
  LockedMemoryRoom& operator=(const LockedMemoryRoom&) = delete;

 private:
  bool set(const rlimit& limit);

  target::Target& target_;
  Addr scratch_;
  rlimit before_{};
  bool is_raised_ = false;
};

}  // namespace uprobe::control
