#include "engine/control/exec_follower.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/control/processes.h"

namespace uprobe::control {
namespace {

constexpr int kExecEvent = SIGTRAP | PTRACE_EVENT_EXEC << 8;

void* as_data(long value) { return reinterpret_cast<void*>(value); }

// The file that the thread means, as a path of ours. Its process's first thread may have ended, and has no folder then.
std::string path_from_here(pid_t tid, const std::string& path, int folder) {
  const std::string proc = "/proc/" + std::to_string(tid);
  if (path.empty()) return proc + "/fd/" + std::to_string(folder);  // execveat with AT_EMPTY_PATH
  if (path[0] == '/') return proc + "/root" + path;
  return folder == AT_FDCWD ? proc + "/cwd/" + path : proc + "/fd/" + std::to_string(folder) + "/" + path;
}

enum class Seen { nothing, stop, end };

// What became of a tracee, without waiting. A stop is only looked at: the kernel delivers the signal of a stop that nobody
// has taken when the tracer is killed. The end of one that is not our child has to be taken by us before its parent is told;
// our own child's is left to the thread that waits for it.
Seen look(pid_t tid, int& status) {
  siginfo_t info{};
  constexpr int kHow = WSTOPPED | WEXITED | WNOHANG | WNOWAIT | __WALL;
  if (::waitid(P_PID, static_cast<id_t>(tid), &info, kHow) != 0) return errno == ECHILD ? Seen::end : Seen::nothing;
  if (info.si_pid != tid) return Seen::nothing;
  if (info.si_code != CLD_TRAPPED && info.si_code != CLD_STOPPED) {
    if (target::parent_of(tid) != ::getpid())
      ::waitid(P_PID, static_cast<id_t>(tid), &info, WEXITED | WNOHANG | __WALL);
    return Seen::end;
  }
  status = info.si_status;  // signal | event << 8
  return Seen::stop;
}

// A group stop keeps the thread stopped until SIGCONT; after that one, and at our own interruption, it goes on.
bool is_group_stop(int status) {
  const int signal = status & 0x7f;
  return status >> 8 == PTRACE_EVENT_STOP &&
         (signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU);
}

}  // namespace

ExecFollower::~ExecFollower() {
  const std::vector<Pending> left = pending_;
  for (const Pending& p : left) failed(p.tid);
  step();  // those that have been killed
}

void ExecFollower::begins(pid_t pid, pid_t tid, const std::string& path, int folder) {
  auto before = credentials_of(pid);
  if (!before) {
    notes_.push_back(path + " runs untraced: the credentials of its caller are not known: " + before.error().text);
    return;
  }
  const bool is_trusted = ::geteuid() == 0 && is_of_tool(*before);
  if (!is_trusted && gives_privileges(path_from_here(tid, path, folder))) {
    notes_.push_back(path + " is set-id: it runs untraced");
    return;
  }
  if (::ptrace(PTRACE_SEIZE, tid, nullptr, as_data(PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD)) != 0) {
    notes_.push_back(path + " runs untraced: ptrace: " + std::strerror(errno));
    return;
  }
  pending_.push_back({.pid = pid, .tid = tid, .before = before.take()});
}

void ExecFollower::failed(pid_t tid) {
  const auto found = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& p) { return p.tid == tid; });
  if (found == pending_.end()) return;
  // One that has been killed meanwhile has to be taken by us (step) before its parent is told.
  found->given_up = true;
  if (::ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr) != 0) return;
  int status = 0;
  Seen seen = Seen::nothing;
  for (int i = 0; i < 2000 && (seen = look(tid, status)) == Seen::nothing; ++i) ::usleep(100);
  if (seen == Seen::nothing) return;
  pending_.erase(found);
  if (seen == Seen::end) return;
  // Detaching from a group stop leaves the thread stopped, as it was without us.
  const int signal = status >> 8 == 0 ? status & 0x7f : 0;
  ::ptrace(PTRACE_DETACH, tid, nullptr, as_data(signal));
}

void ExecFollower::step() {
  for (std::size_t i = 0; i < pending_.size();) {
    if (look_at(pending_[i]))
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    else
      ++i;
  }
}

// True when there is nothing more to wait for.
bool ExecFollower::look_at(Pending& p) {
  int status = 0;
  const Seen thread = look(p.tid, status);
  if (thread == Seen::stop) return handle_stop(p, p.tid, status);
  if (p.pid == p.tid) return thread == Seen::end;
  // Another thread than the first one takes over the first one's id when execve succeeds.
  const Seen leader = look(p.pid, status);
  if (leader == Seen::stop) return handle_stop(p, p.pid, status);
  return thread == Seen::end && leader == Seen::end;
}

// The file may have been exchanged since its call was announced: the kernel's word on the process that it has made of it counts.
Status ExecFollower::load(const Pending& p, target::PtraceTarget& target) {
  const auto after = credentials_of(target.pid());
  if (!after) return after.error();
  if (!is_of_tool(p.before) && has_gained(p.before, *after))
    return Error{.code = Code::refused, .text = "execve has changed its credentials"};
  return load_(target);
}

bool ExecFollower::handle_stop(Pending& p, pid_t who, int status) {
  if (p.given_up) return ::ptrace(PTRACE_DETACH, who, nullptr, nullptr) == 0;
  if (status != kExecEvent) {
    const int signal = status >> 8 == 0 ? status & 0x7f : 0;
    ::ptrace(is_group_stop(status) ? PTRACE_LISTEN : PTRACE_CONT, who, nullptr, as_data(signal));
    return false;
  }
  // A thread other than the first one has another id now: until this stop has been taken, ptrace says ESRCH (kernel/ptrace.c,
  // looks_like_a_spurious_pid).
  while (::waitpid(who, &status, __WALL | WNOHANG) < 0 && errno == EINTR) {
  }
  auto target = target::PtraceTarget::adopt(p.pid);
  const Status loaded = target ? load(p, **target) : Status(target.error());
  if (!loaded) notes_.push_back("a program runs untraced after execve: " + loaded.error().text);
  // Killed in between it is still ours, and its parent waits until we have seen its end.
  p.given_up = !target || !(*target)->release();
  return !p.given_up;
}

}  // namespace uprobe::control
