// SPDX-License-Identifier: MIT
#include "engine/target/attachable.h"

#include <elf.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

#include "arch/abi/process_status.h"
#include "engine/base/fd.h"
#include "engine/base/procfs.h"
#include "engine/base/regular_file.h"
#include "engine/base/roles.h"
#include "engine/proxy/memory.h"
#include "engine/target/process_list.h"
#include "engine/target/process_stat.h"
#include "engine/target/seccomp.h"
#include "engine/target/target.h"

namespace uprobe::target {
namespace {

// "Name:\tvalue" of a status file; empty: there is no such line.
std::string value_of(const std::string& status, const char* name) {
  return std::string(procfs::field(status, name).value_or(""));
}

Error refused(pid_t pid, const std::string& why, std::string help = {}) {
  return Error{.code = Code::refused, .text = why, .where = procfs::called(pid), .help = std::move(help)};
}

// What its filters allow is found out when it is held (engine/inject/seccomp.h).
Status check_filters(pid_t pid, pid_t tid, bool trusts_filters) {
  if (!is_filtered(pid, tid)) return ok();
  if (is_in_strict_mode(pid, tid))
    return refused(pid, "is in the strict mode of seccomp, which kills it for the system calls that attaching needs");
  if (can_suspend_filters() || trusts_filters || shares_our_filters(pid, tid)) return ok();
  return refused(
      pid, "has a seccomp filter, which may kill it for the system calls that attaching needs",
      "use root outside of containers, which can read the filter; start the program under uprobe-run; or, if the "
      "filter allows them, --seccomp=trust");
}

Status check_threads(pid_t pid, bool trusts_filters) {
  for (const pid_t tid : threads_of(pid)) {
    const auto status = procfs::read(pid, tid, "status");
    if (!status) continue;
    RETURN_IF_ERROR(check_filters(pid, tid, trusts_filters));
    if (arch::has_shadow_stack(value_of(*status, arch::kThreadFeatures)))
      return refused(pid, "runs with a shadow stack");
    const auto tracer = static_cast<pid_t>(procfs::number(*status, "TracerPid"));
    if (tracer == 0) continue;
    Error traced = refused(pid, "is traced by " + procfs::called(tracer) + " already");
    if (is_tool_process(tracer)) traced.retry = Retry::soon;
    return traced;
  }
  return ok();
}

// A child of vfork has its parent's memory until it has called execve.
template <class Condition>
bool await(Condition condition) {
  constexpr useconds_t kMoment = 1000;
  for (int looks = 0; looks < 1000; ++looks) {
    if (condition()) return true;
    ::usleep(kMoment);
  }
  return condition();
}

Status check_program(pid_t pid) {
  const std::string link = procfs::path(pid, "exe");
  const auto file = open_regular(link);
  unsigned char head[EI_CLASS + 1] = {};
  if (!file) return ok();  // what it is shows later
  if (read_at(file->fd, head, sizeof head, 0) != sizeof head) return ok();
  return head[EI_CLASS] == ELFCLASS32 ? Status(refused(pid, "is a 32-bit program")) : ok();
}

// No memory of its own: it never had any, or has given it back on its way out.
Error without_memory(pid_t pid) {
  const auto stat = stat_of(pid);
  if (stat && is_kernel_thread(*stat)) return refused(pid, "is a kernel thread");
  Error ending = refused(pid, "is about to end");
  ending.err = ESRCH;
  return ending;
}

// For a moment also while another thread is in execve, before it takes over the first one's id (fs/exec.c, de_thread).
bool has_lost_first_thread(pid_t pid) {
  const auto stat = stat_of(pid);
  return stat && (stat->state == 'Z' || stat->state == 'X') && stat->threads > 1;
}

Status check_number(pid_t pid, const Result<std::string>& status) {
  if (!status) return Error{.code = Code::not_found, .text = "no process " + std::to_string(pid)};
  const std::string group = value_of(*status, "Tgid");
  if (group == std::to_string(pid)) return ok();
  return Error{.code = Code::refused,
               .text = std::to_string(pid) + " is a thread of process " + group,
               .help = "-P " + group + " attaches to all of it"};
}

}  // namespace

Status check_readable(pid_t pid) {
  RETURN_IF_ERROR(check_number(pid, procfs::read(pid, "status")));
  if (const auto stat = stat_of(pid); stat && is_kernel_thread(*stat)) return refused(pid, "is a kernel thread");
  struct stat program {};
  if (::stat(procfs::path(pid, "exe").c_str(), &program) == 0 || (errno != EACCES && errno != EPERM)) return ok();
  return explain_refusal(pid, errno);
}

Status check_attachable(pid_t pid, bool trusts_filters) {
  if (!await([&] { return !has_lost_first_thread(pid); }))
    return refused(pid, "has lost its first thread, which /proc would be needed through");
  const auto status = procfs::read(pid, "status");
  RETURN_IF_ERROR(check_number(pid, status));
  if (pid == ::getpid()) return refused(pid, "is this uprobe-run itself");
  const std::string state = value_of(*status, "State");
  const bool ended = !state.empty() && (state[0] == 'Z' || state[0] == 'X');
  const std::string threads = value_of(*status, "Threads");
  if (ended && (threads == "1" || threads.empty()))
    return refused(pid, "has ended, its parent has not taken notice yet");
  Error begins = refused(pid, "begins another program just now");
  begins.retry = Retry::soon;
  if (ended) return begins;
  if (value_of(*status, "VmSize").empty()) return without_memory(pid);
  RETURN_IF_ERROR(check_program(pid));
  RETURN_IF_ERROR(check_threads(pid, trusts_filters));
  if (!await([&] { return !borrows_memory(pid); })) return refused(pid, "runs in the memory of its parent");
  return check_lending(pid);
}

bool borrows_memory(pid_t pid) {
  const auto status = procfs::read(pid, "status");
  const auto parent = status ? static_cast<pid_t>(procfs::number(*status, "PPid")) : 0;
  return parent != 0 && proxy::share_memory(pid, parent).value_or(false);
}

// A breakpoint in shared memory would kill a process that has no handler for it.
Status check_lending(pid_t pid) {
  for (const pid_t tid : threads_of(pid)) {
    const auto children = procfs::read(pid, tid, "children");
    std::istringstream words(children ? *children : std::string());
    for (pid_t child = 0; words >> child;)
      if (!await([&] { return !proxy::share_memory(pid, child).value_or(false); }))
        return refused(pid, "shares its memory with " + procfs::called(child));
  }
  return ok();
}

bool lends_memory(pid_t pid) {
  return std::ranges::any_of(children_of(pid),
                             [pid](pid_t child) { return proxy::share_memory(pid, child).value_or(false); });
}

bool may_lend_memory(pid_t pid, pid_t tid) {
  const auto children = procfs::read(pid, tid, "children");
  if (!children) return true;
  std::istringstream words(*children);
  for (pid_t child = 0; words >> child;) {
    if (proxy::share_memory(pid, child).value_or(true)) return true;
  }
  return false;
}

namespace {

std::uint64_t capabilities(pid_t pid, std::string_view set) {
  const auto status = procfs::read(pid, "status");
  return status ? procfs::capabilities(*status, set) : 0;
}

// Without the capability a process may trace those of its own user that have no more capabilities than it has itself (ptrace(2)).
Error without_capability(pid_t pid, uid_t owner) {
  const std::string allow = "allow it (" + std::string(kAllowPtrace) + ")";
  if (owner != ::geteuid()) {
    const std::string user = std::to_string(owner);
    return refused(pid, "belongs to user " + user + ", and uprobe-run has no CAP_SYS_PTRACE",
                   "run uprobe-run as that user (docker exec -u " + user + "), or " + allow);
  }
  if ((capabilities(pid, "CapPrm") & ~capabilities(::getpid(), "CapPrm")) != 0)
    return refused(pid, "has more capabilities than uprobe-run, which has no CAP_SYS_PTRACE",
                   "run uprobe-run with the same capabilities, or " + allow);
  return refused(pid, "may not be traced: a seccomp filter or a security module forbids ptrace, or its user namespace",
                 allow + ", or start the program with LD_PRELOAD=libuprobe.so, which needs no ptrace");
}

bool may_trace_all() {
  constexpr unsigned kSysPtrace = 19;  // linux/capability.h
  return (capabilities(::getpid(), "CapEff") >> kSysPtrace & 1) != 0;
}

}  // namespace

Error explain_refusal(pid_t pid, int error) {
  if (error == ETIMEDOUT) return refused(pid, "is in an execve that does not end");
  if (error != EPERM && error != EACCES) return refused(pid, std::strerror(error));
  struct stat owner {};
  const bool is_ours = ::stat(procfs::path(pid).c_str(), &owner) == 0 && owner.st_uid == ::geteuid();
  const std::string scope = procfs::ptrace_scope();
  if (scope == "3") return refused(pid, "ptrace is switched off (kernel.yama.ptrace_scope is 3)");
  if (scope == "2" && ::geteuid() != 0)
    return refused(pid, "only root may attach here (kernel.yama.ptrace_scope is 2)",
                   "use sudo, or start the program with LD_PRELOAD=libuprobe.so, which needs no ptrace");
  if (scope == "1" && is_ours && ::geteuid() != 0)
    return refused(pid, "only programs that uprobe-run has started may be traced here (kernel.yama.ptrace_scope is 1)",
                   "sysctl kernel.yama.ptrace_scope=0, or start the program under uprobe-run");
  if (!is_ours && ::geteuid() != 0)
    return refused(pid, "belongs to another user, or has more rights than its user", "use sudo");
  if (!may_trace_all()) return without_capability(pid, owner.st_uid);
  return refused(pid, "may not be traced: a seccomp filter or a security module forbids ptrace",
                 "start the program with LD_PRELOAD=libuprobe.so, which needs no ptrace");
}

}  // namespace uprobe::target
