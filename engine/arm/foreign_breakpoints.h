// SPDX-License-Identifier: MIT
// Keeps an eye on the text of the traced processes, for breakpoints that the kernel's uprobes put over ours and take away again.
//
// A uprobe that is set writes int3 over the first byte of a jump and executes the file's instruction by itself; that is right as
// long as the jump stands for one instruction. When it is taken away the kernel puts the file's first byte back: in front of the
// rest of a jump that is no instruction. So what is behind a foreign int3 becomes the file's again at the first look, and
// where the first byte has come back a breakpoint of ours goes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <set>

#include "engine/arm/armer.h"
#include "engine/base/address.h"

namespace uprobe::control {

class ForeignBreakpoints {
 public:
  // Both outlive it. `blocks`: where the session's process blocks may be.
  ForeignBreakpoints(Armer& armer, const std::set<Addr>& blocks) : armer_(armer), blocks_(blocks) {}
  // A process of the session; its children are found.
  void add(pid_t pid) { known_.insert(pid); }
  // Looks at all of them, but no more often than every 50 ms, and never for more than a fiftieth of the time.
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
