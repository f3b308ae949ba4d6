// SPDX-License-Identifier: MIT
#include "engine/target/seccomp.h"

#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

#include "engine/base/procfs.h"
#include "engine/target/thread_change.h"

namespace uprobe::target {
namespace {

constexpr long kNone = 0, kStrict = 1, kFilters = 2;  // the mode, as /proc shows it
constexpr std::size_t kMostAncestors = 4096;

struct Filters {
  long mode = kFilters, count = -1;  // -1: the kernel does not show it (before 5.9)
};

Filters filters_in(const Result<std::string>& status) {
  if (!status) return {};
  const bool has_count = procfs::field(*status, "Seccomp_filters").has_value();
  return {procfs::number(*status, "Seccomp"), has_count ? procfs::number(*status, "Seccomp_filters") : -1};
}

Filters filters_of(pid_t pid, pid_t tid) { return filters_in(procfs::read(pid, tid, "status")); }

bool are_as_many(const Filters& one, const Filters& other) {
  return one.mode == kFilters && other.mode == kFilters && one.count > 0 && one.count == other.count;
}

// The process itself first. It ends where the parent is not to be seen: it is outside of this PID namespace.
std::vector<pid_t> line_of(pid_t pid) {
  std::vector<pid_t> line;
  while (pid > 0 && line.size() < kMostAncestors) {
    line.push_back(pid);
    const auto status = procfs::read(pid, "status");
    pid = status ? static_cast<pid_t>(procfs::number(*status, "PPid")) : 0;
  }
  return line;
}

// 0: none is to be seen.
pid_t common_ancestor(pid_t one, pid_t other) {
  const std::vector<pid_t> ones = line_of(one), others = line_of(other);
  const auto found = std::find_first_of(ones.begin(), ones.end(), others.begin(), others.end());
  return found == ones.end() ? 0 : *found;
}

bool seize_with_suspension(pid_t pid) {
  return seize(pid, PTRACE_O_TRACESYSGOOD | PTRACE_O_SUSPEND_SECCOMP, std::chrono::seconds(2)) == 0;
}

bool try_on_a_child() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // where the tool is killed before it kills the child
    for (;;) ::pause();
  }
  if (child < 0) return false;
  const bool is_done = seize_with_suspension(child);
  ::kill(child, SIGKILL);
  while (::waitpid(child, nullptr, __WALL) < 0 && errno == EINTR) {
  }
  return is_done;
}

}  // namespace

bool is_filtered(pid_t pid, pid_t tid) { return filters_of(pid, tid).mode != kNone; }
bool shows_filters(const Result<std::string>& status) { return filters_in(status).mode != kNone; }
bool is_in_strict_mode(pid_t pid, pid_t tid) { return filters_of(pid, tid).mode == kStrict; }

bool can_suspend_filters() {
  static const bool can = try_on_a_child();
  return can;
}

Status suspend_filters(pid_t tid, bool suspended) {
  const unsigned long options = PTRACE_O_TRACESYSGOOD | (suspended ? PTRACE_O_SUSPEND_SECCOMP : 0);
  if (::ptrace(PTRACE_SETOPTIONS, tid, nullptr, as_data(options)) == 0) return ok();
  return system_error("PTRACE_O_SUSPEND_SECCOMP", errno);
}

bool has_as_many_filters_as_we(pid_t pid) {
  return are_as_many(filters_of(::getpid(), ::getpid()), filters_of(pid, pid));
}

bool shares_our_filters(pid_t pid, pid_t tid) {
  const Filters ours = filters_of(::getpid(), ::getpid());
  if (!are_as_many(ours, filters_of(pid, tid))) return false;
  const pid_t ancestor = common_ancestor(::getpid(), pid);
  return ancestor != 0 && are_as_many(ours, filters_of(ancestor, ancestor));
}

}  // namespace uprobe::target
