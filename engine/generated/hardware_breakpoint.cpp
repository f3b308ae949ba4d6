// SPDX-License-Identifier: MIT
#include "engine/generated/hardware_breakpoint.h"

#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "arch/abi/hardware_breakpoints.h"

namespace uprobe::control {
namespace {

Error reason(int err) {
  const auto refused = [err](std::string text, std::string help) {
    return Error{.code = Code::refused, .text = std::move(text), .help = std::move(help), .err = err};
  };
  if (err == ENOSPC)
    return refused("the processor has " + std::to_string(arch::kHardwareBreakpoints) +
                       " hardware breakpoints, and others use them",
                   "");
  if (err == EACCES || err == EPERM)
    return refused("hardware breakpoints are not allowed here (perf_event_open)",
                   "kernel.perf_event_paranoid 2 or less, or CAP_PERFMON");
  if (err == EMFILE || err == ENFILE) return system_error("perf_event_open", err);
  return refused("this kernel or machine has no hardware breakpoints that send signals (Linux 5.13 has them)", "");
}

perf_event_attr attributes(Addr at, std::uint64_t name) {
  perf_event_attr wanted{};
  wanted.size = sizeof wanted;
  wanted.type = PERF_TYPE_BREAKPOINT;
  wanted.bp_type = HW_BREAKPOINT_X;
  wanted.bp_addr = at.value;
  wanted.bp_len = sizeof(long);  // what the kernel wants for one on execution
  wanted.sample_period = 1;
  wanted.exclude_kernel = 1;
  wanted.exclude_hv = 1;
  wanted.sigtrap = 1;
  wanted.sig_data = name;
  wanted.remove_on_exec = 1;
  wanted.inherit = 1;
  wanted.inherit_thread = 1;
  return wanted;
}

}  // namespace

// A thread may be killed while it is stopped.
Result<HardwareBreakpoint> HardwareBreakpoint::set(const target::StoppedProcess& process, Addr at, std::uint64_t name) {
  perf_event_attr wanted = attributes(at, name);
  HardwareBreakpoint made;
  for (const auto& thread : process.threads()) {
    Fd fd(static_cast<int>(::syscall(SYS_perf_event_open, &wanted, thread.tid, -1, -1, PERF_FLAG_FD_CLOEXEC)));
    if (!fd && errno != ESRCH) return reason(errno);
    if (fd) made.of_threads_.push_back(std::move(fd));
  }
  if (made.of_threads_.empty()) return target::process_ended();
  return made;
}

}  // namespace uprobe::control
