// SPDX-License-Identifier: MIT
// The guardian is no child of the tool, so that a look at the tool's children does not show it, and it has a session of its own:
// a stop of the tool's process group does not stop the guardian. It looks at the tool a few times a second, and at other processes
// only when the tool is stopped. What it goes by is the kernel's word, and nothing that the tool would have to keep up to date.
//
// A process that stops the guardian as well (`pkill -STOP uprobe`) stops it for a moment: a timer of its own sends it SIGCONT, which the
// kernel obeys as it sends it (kernel/signal.c, prepare_signal).
#include "engine/target/guardian.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/base/fd.h"
#include "engine/base/procfs.h"
#include "engine/base/roles.h"
#include "engine/target/process_list.h"
#include "engine/target/process_stat.h"
#include "engine/target/target.h"

namespace uprobe::target {
namespace {

constexpr int kPaceMs = 200;

pid_t g_guarded = 0;  // a forked child is not

// Descriptors that stay open would keep the readers of a pipe waiting.
void keep_only(int kept) {
  const auto number = static_cast<unsigned>(kept);
  if (number != 0) ::syscall(SYS_close_range, 0U, number - 1, 0U);
  ::syscall(SYS_close_range, number + 1, ~0U, 0U);
}

bool is_stopped(pid_t tool) {
  const auto stat = stat_of(tool);
  return stat && stat->state == 'T';
}

std::string program_of(pid_t pid) { return procfs::link(pid, "exe"); }

struct Guarded {
  pid_t tool, waiting;
};

// A thread that one of the tool's threads traces (`tracers`; the kernel names that thread, and not its process), or a program to be
// launched that waits for the tool: before execve it has the tool's file.
bool is_held(const Guarded& by, const std::vector<pid_t>& tracers, pid_t pid) {
  const pid_t tool = by.tool;
  for (const pid_t tid : threads_of(pid)) {
    const auto status = procfs::read(pid, tid, "status");
    if (!status) continue;
    const auto tracer = static_cast<pid_t>(procfs::number(*status, "TracerPid"));
    if (std::ranges::find(tracers, tracer) != tracers.end()) return true;
    const bool may_wait = pid == by.waiting || procfs::number(*status, "PPid") == tool;
    if (may_wait && program_of(pid) == program_of(tool)) return true;
  }
  return false;
}

bool holds_a_program(const Guarded& guarded) {
  const auto processes = list_processes();
  const auto tracers = threads_of(guarded.tool);
  const auto holds = [&](const ProcessEntry& one) { return is_held(guarded, tracers, one.pid); };
  return std::ranges::any_of(processes, holds);
}

// Begins when the guardian has not called this for longer than it ever pauses. The signal needs a handler: the kernel sets a timer for
// the next time as its signal is delivered.
class Waker {
 public:
  Waker() {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    ::sigaction(SIGCONT, &action, nullptr);
    sigset_t all_others;
    ::sigfillset(&all_others);
    ::sigdelset(&all_others, SIGCONT);
    ::sigprocmask(SIG_SETMASK, &all_others, nullptr);
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL, event.sigev_signo = SIGCONT;
    is_made_ = ::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
  }
  void put_off() const {
    constexpr timespec kLater{.tv_sec = 0, .tv_nsec = 2 * kPaceMs * 1'000'000L};
    const itimerspec times{.it_interval = kLater, .it_value = kLater};
    if (is_made_) ::timer_settime(timer_, 0, &times, nullptr);
  }

 private:
  timer_t timer_{};
  bool is_made_ = false;
};

bool has_tool_ended(int process) {
  pollfd end{process, POLLIN, 0};
  const int seen = ::poll(&end, 1, kPaceMs);
  return seen > 0 || (seen < 0 && errno != EINTR);
}

[[noreturn]] void guard(const Guarded& guarded, int process) {
  ::setsid();
  const Waker waker;
  ::prctl(PR_SET_NAME, kGuardianName);
  (void)!::chdir("/");
  keep_only(process);
  for (waker.put_off(); !has_tool_ended(process); waker.put_off())
    if (is_stopped(guarded.tool) && holds_a_program(guarded))
      ::syscall(SYS_pidfd_send_signal, process, SIGCONT, nullptr, 0U);
  ::_exit(0);
}

}  // namespace

void start_guardian(pid_t waiting) {
  const pid_t tool = ::getpid();
  if (g_guarded == tool) return;
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, tool, 0U)));
  const pid_t between = process ? ::fork() : -1;
  if (between == 0) {
    if (::fork() == 0) guard({tool, waiting}, process.get());
    ::_exit(0);
  }
  if (between < 0) return;
  g_guarded = tool;
  while (::waitpid(between, nullptr, __WALL) < 0 && errno == EINTR) {
  }
}

}  // namespace uprobe::target
