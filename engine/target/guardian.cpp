// SPDX-License-Identifier: MIT
// The guardian is no child of the tool, so that a look at the tool's children does not show it, and it has a session of its own:
// a stop of the tool's process group does not stop the guardian. It looks at the tool a few times a second, and at other processes
// only when the tool is stopped. What it goes by is the kernel's word, and nothing that the tool would have to keep up to date.
#include "engine/target/guardian.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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

std::string program_of(pid_t pid) { return procfs::link(procfs::path(pid, "exe")); }

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

[[noreturn]] void guard(const Guarded& guarded, int process) {
  ::setsid();
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_NAME, kGuardianName);
  (void)!::chdir("/");
  keep_only(process);
  for (pollfd end{process, POLLIN, 0}; ::poll(&end, 1, kPaceMs) == 0;)
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
