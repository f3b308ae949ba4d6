// SPDX-License-Identifier: MIT
// All processes of the machine are looked at only when those that are known have gone.
#include "engine/session/survivors.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>

#include "engine/process/processes.h"
#include "engine/session/session_state.h"

namespace uprobe {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr std::size_t kMostKnown = 16;
// A process that forks and ends while a look is under way may be missed with its child, but its child is not, in the next look.
constexpr int kEmptyLooks = 3;
constexpr auto kCheckPause = 100ms;

// A program that execve has started without the tool has the same number and no session. What may not be read is believed to have one.
bool may_be_traced(pid_t pid) {
  if (control::has_session(pid)) return true;
  const Fd maps(::open(("/proc/" + std::to_string(pid) + "/maps").c_str(), O_RDONLY | O_CLOEXEC));
  return !maps && (errno == EACCES || errno == EPERM);
}

}  // namespace

bool Survivors::is_gone(const Known& process, std::chrono::microseconds limit) {
  if (has_ended(process.handle.get(), limit)) return true;
  if (steady_clock::now() < next_check_) return false;
  next_check_ = steady_clock::now() + kCheckPause;
  return !may_be_traced(process.pid);
}

// Whether there are any.
bool Survivors::find() {
  count_ = 0;
  for (const pid_t pid : control::processes_mapping(area_)) {
    if (pid == ::getpid() || control::is_tool_of(pid, area_)) continue;
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
  // Before and after: a process may begin its execve, and another may end it, during the look.
  const bool is_empty = !is_following_() && !find() && !is_following_();
  empty_looks_ = is_empty ? empty_looks_ + 1 : 0;
  if (empty_looks_ >= kEmptyLooks) return true;
  if (known_.empty()) std::this_thread::sleep_for(limit);
  return false;
}

}  // namespace uprobe
