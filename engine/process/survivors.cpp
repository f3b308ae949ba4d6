// SPDX-License-Identifier: MIT
// Looks at all processes of the machine only when the known ones have gone.
#include "engine/process/survivors.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>

#include "engine/base/procfs.h"
#include "engine/process/processes.h"
#include "engine/process/program_end.h"
#include "engine/proxy/memory.h"

namespace uprobe::control {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr std::size_t kMostKnown = 16;
// A process that forks and ends during a look may be missed together with its child, but the next look finds the child.
constexpr int kEmptyLooks = 3;
constexpr auto kCheckPause = 100ms;

// A program that execve has started without the tool has the same id and no session. A process that may not be read counts as
// traced.
bool may_be_traced(pid_t pid) {
  if (has_session(pid)) return true;
  const auto maps = proxy::open_of(pid, procfs::path(pid, "maps"), O_RDONLY);
  return !maps && (maps.error().err == EACCES || maps.error().err == EPERM);
}

}  // namespace

bool Survivors::is_gone(const Known& process, std::chrono::microseconds limit) {
  if (has_ended(process.handle.get(), limit)) return true;
  if (steady_clock::now() < next_check_) return false;
  next_check_ = steady_clock::now() + kCheckPause;
  return !may_be_traced(process.pid);
}

// Looks at all processes. True: some are left.
bool Survivors::find() {
  count_ = 0;
  for (const pid_t pid : processes_mapping(area_)) {
    if (pid == ::getpid() || is_tool_of(pid, area_)) continue;
    Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!handle && errno == ESRCH) continue;
    ++count_;
    if (handle && known_.size() < kMostKnown) known_.push_back({pid, std::move(handle)});
  }
  return count_ != 0;
}

bool Survivors::have_ended(std::chrono::microseconds limit) {
  while (!known_.empty() && is_gone(known_.back(), limit)) known_.pop_back();
  if (!known_.empty()) return false;
  // is_following_ is asked before and after, because a process may begin its execve, and another may end one, during the look.
  const bool is_empty = !is_following_() && !find() && !is_following_();
  empty_looks_ = is_empty ? empty_looks_ + 1 : 0;
  if (empty_looks_ >= kEmptyLooks) return true;
  if (known_.empty()) std::this_thread::sleep_for(limit);
  return false;
}

}  // namespace uprobe::control
