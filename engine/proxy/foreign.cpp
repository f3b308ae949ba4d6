// SPDX-License-Identifier: MIT
#include "engine/proxy/foreign.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>

#include "engine/base/procfs.h"

namespace uprobe::proxy {

bool may_look_at_others() {
  static const bool may = [] {
    constexpr int kPtrace = 19;  // CAP_SYS_PTRACE
    const auto status = procfs::read(::getpid(), "status");
    return ::geteuid() == 0 || (status && (procfs::capabilities(*status, "CapEff") >> kPtrace & 1) != 0);
  }();
  return may;
}

std::optional<Owner> Foreign::user() const {
  constexpr std::int64_t kHolds = 100'000'000;
  const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  if (const std::int64_t then = looked_at_; then == 0 || now - then >= kHolds) {
    struct stat folder {};
    const bool is_foreign = ::stat(procfs::path(pid_).c_str(), &folder) == 0 && folder.st_uid != ::geteuid();
    user_ = is_foreign ? folder.st_uid : kOwn;
    looked_at_ = now;
  }
  const uid_t user = user_;
  return user != kOwn ? std::optional(Owner(user, pid_)) : std::nullopt;
}

}  // namespace uprobe::proxy
