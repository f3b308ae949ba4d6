// SPDX-License-Identifier: MIT
// A breakpoint of the processor at an address of a process: every thread that arrives gets a SIGTRAP (TRAP_PERF) before the
// instruction runs. No byte of the code is changed, so a program that moves, copies, reads or writes its code finds its own.
//
// The kernel keeps it as long as the descriptors of perf_event_open are open (Linux 5.13, perf_event_attr::sigtrap). Threads that
// the process starts later have it too, children and programs that it executes do not. If the tool dies it is gone.
#pragma once

#include <vector>

#include "engine/base/address.h"
#include "engine/base/fd.h"
#include "engine/base/result.h"
#include "engine/target/stopped_process.h"

namespace uprobe::control {

class HardwareBreakpoint {
 public:
  // In all threads of the process, or in none. `name`: what siginfo names it by.
  static Result<HardwareBreakpoint> set(const target::StoppedProcess& process, Addr at, std::uint64_t name);

 private:
  std::vector<Fd> of_threads_;
};

}  // namespace uprobe::control
