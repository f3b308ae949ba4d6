// SPDX-License-Identifier: MIT
// Takes notice of the end of threads whose tracer cannot, since it waits for a lock of the kernel's.
//
// A thread in execve waits for all others of its process to end, and for their tracers to take notice; until then it has the
// lock that PTRACE_SEIZE of it asks for (fs/exec.c, de_thread; kernel/ptrace.c, ptrace_attach: cred_guard_mutex). Who has
// seized some of them and wants that one too would wait for ever, and so would the program. Any thread of the tracer's process
// may take notice.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace uprobe::target {

class ExitReaper {
 public:
  // Of those in `tracees`, which must not change between begin() and end().
  explicit ExitReaper(const std::vector<pid_t>& tracees);
  ~ExitReaper();
  ExitReaper(const ExitReaper&) = delete;
  ExitReaper& operator=(const ExitReaper&) = delete;

  // The caller may wait for a lock from here to there.
  void begin() { set_awaited(true); }
  void end() { set_awaited(false); }

 private:
  void set_awaited(bool is_awaited);
  void work();

  const std::vector<pid_t>& tracees_;
  std::mutex lock_;
  std::condition_variable changed_;
  bool is_awaited_ = false, has_ended_ = false;
  std::thread thread_;
};

}  // namespace uprobe::target
