// SPDX-License-Identifier: MIT
#include "engine/target/thread_change.h"

#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cerrno>

#include "engine/target/interrupted_syscall.h"

namespace uprobe::target {

pid_t take_change(pid_t tid, int& status, int how) {
  const auto id = static_cast<id_t>(tid);
  siginfo_t info{};
  if (::waitid(P_PID, id, &info, WSTOPPED | WEXITED | WNOWAIT | __WALL | how) != 0) return -1;
  if (info.si_pid != tid) return 0;
  const bool has_stopped = info.si_code == CLD_TRAPPED || info.si_code == CLD_STOPPED;
  status = has_stopped ? info.si_status << 8 | 0x7f : 0;
  if (has_stopped) return ::waitid(P_PID, id, &info, WSTOPPED | WNOHANG | __WALL) == 0 ? tid : -1;
  take_end(tid);
  return tid;
}

Error ptrace_error(const char* what) { return errno == ESRCH ? process_ended() : system_error(what, errno); }

void take_end(pid_t tid) {
  const auto id = static_cast<id_t>(tid);
  siginfo_t info{};
  const bool is_over = ::waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 && info.si_pid == tid;
  if (!is_over || is_own_child(tid)) return;  // the end of a child is awaited elsewhere
  ::waitid(P_PID, id, &info, WEXITED | WNOHANG | __WALL);
}

namespace {

// What the kernel would do.
arch::Restart restart_of(const arch::ThreadRegisters& r) {
  if (arch::call_number(r) < 0) return arch::Restart::none;
  switch (arch::result(r)) {
    case kRestart:
    case kRestartNoIntr:
    case kRestartNoHandler:
      return arch::Restart::again;
    case kRestartBlock:
      return arch::Restart::rest;
    default:
      return arch::Restart::none;
  }
}

}  // namespace

// The sequence is not struck out of the thread's rseq area: the kernel does that once the thread is outside, and before then a tool that
// is killed must leave it as it was.
void leave_sequence(Target& target, pid_t tid, arch::ThreadRegisters& registers) {
  constexpr std::uint64_t kDescriptorAt = 8;  // struct rseq::rseq_cs
  struct Configuration {
    std::uint64_t area;
    std::uint32_t bytes, signature, flags, pad;
  } configuration{};
  struct Section {
    std::uint32_t version, flags;
    std::uint64_t begin, bytes, abort;
  } section{};
  std::uint64_t descriptor = 0;
  constexpr auto kGetRseqConfiguration = static_cast<__ptrace_request>(0x420f);
  if (::ptrace(kGetRseqConfiguration, tid, as_data(sizeof configuration), &configuration) <= 0) return;
  if (configuration.area == 0) return;
  const Addr at{configuration.area + kDescriptorAt};
  if (!target.read(at, &descriptor, sizeof descriptor) || descriptor == 0) return;
  if (!target.read(Addr{descriptor}, &section, sizeof section)) return;
  if (arch::instruction_pointer(registers) - section.begin >= section.bytes) return;
  arch::set_instruction_pointer(registers, section.abort);
}

arch::RemoteCallReturn way_home(const arch::ThreadRegisters& registers, std::uint64_t mask) {
  return arch::return_to(registers, mask, restart_of(registers));
}

}  // namespace uprobe::target
