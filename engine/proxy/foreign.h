// SPDX-License-Identifier: MIT
// Which processes a proxy has to be asked for: those of other users.
//
// The owner of the folder /proc/PID is the process's effective user, whatever the process says about being dumped (fs/proc/base.c,
// task_dump_owner).
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <optional>

namespace uprobe::proxy {

// Whom an order concerns: a process and its user. Orders that do not come back hold up further ones for the same process, and many of them all
// for the same user. pid 0: any process of the user's.
struct Owner {
  Owner(uid_t its_user, pid_t its_pid = 0) : user(its_user), pid(its_pid) {}
  uid_t user;
  pid_t pid;
};

// Whether this process may look at those of other users at all.
bool may_look_at_others();

// Looks again after a tenth of a second, because a process may have become another user's. Threads may share it.
class Foreign {
 public:
  explicit Foreign(pid_t pid) : pid_(pid) {}
  Foreign(Foreign&& other) noexcept : pid_(other.pid_) {}
  Foreign& operator=(Foreign&& other) noexcept {
    pid_ = other.pid_;
    looked_at_ = 0;
    return *this;
  }
  ~Foreign() = default;

  // Nothing: the process is the tool's own user's, or gone.
  std::optional<Owner> user() const;

 private:
  static constexpr uid_t kOwn = ~uid_t{0};  // no user has it
  pid_t pid_;
  mutable std::atomic<std::int64_t> looked_at_{0};  // 0: not yet
  mutable std::atomic<uid_t> user_{kOwn};
};

}  // namespace uprobe::proxy
