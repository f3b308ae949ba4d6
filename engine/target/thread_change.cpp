// SPDX-License-Identifier: MIT
#include "engine/target/thread_change.h"

#include <sys/wait.h>

#include <cerrno>

#include "engine/target/target.h"

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

}  // namespace uprobe::target
