// SPDX-License-Identifier: MIT
// Watches the text of traced processes for breakpoints that the kernel's uprobes put over this tool's and later remove.
//
// A uprobe writes int3 over the first byte of a jump and executes the file's instruction itself, which is right as long as the
// jump stands for one instruction. When the uprobe is removed the kernel restores the file's first byte, and together with the
// rest of the jump that is no instruction. So at the first look the bytes after a foreign int3 become the file's again, and
// where the first byte has been restored the tool writes a breakpoint.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <set>

#include "engine/arm/armer.h"
#include "engine/base/address.h"

namespace uprobe::control {

class ForeignBreakpoints {
 public:
  // Both must outlive it. `blocks`: the addresses where the session's process blocks may be.
  ForeignBreakpoints(Armer& armer, const std::set<Addr>& blocks) : armer_(armer), blocks_(blocks) {}
  // Adds a process of the session; its children are found by step().
  void add(pid_t pid) { known_.insert(pid); }
  // Looks at all of them, at most every 50 ms and for at most a fiftieth of the time.
  void step();

 private:
  void find_children();
  bool look(pid_t pid);

  Armer& armer_;
  const std::set<Addr>& blocks_;
  std::set<pid_t> known_;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace uprobe::control
