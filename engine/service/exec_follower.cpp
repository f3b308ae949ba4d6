// SPDX-License-Identifier: MIT
#include "engine/service/exec_follower.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/procfs.h"
#include "engine/process/processes.h"
#include "engine/proxy/foreign.h"
#include "engine/proxy/memory.h"
#include "engine/target/thread_change.h"

namespace uprobe::control {
namespace {

constexpr int kExecEvent = SIGTRAP | PTRACE_EVENT_EXEC << 8;

// The path, as the tool sees it, of the file that the thread names. The thread's own /proc entry is used because the process's
// first thread may have ended, and then has no folder.
std::string path_from_here(pid_t tid, const std::string& path, int folder) {
  const std::string proc = procfs::path(tid);
  if (path.empty()) return proc + "/fd/" + std::to_string(folder);  // execveat with AT_EMPTY_PATH
  if (path[0] == '/') return proc + "/root" + path;
  return folder == AT_FDCWD ? proc + "/cwd/" + path : proc + "/fd/" + std::to_string(folder) + "/" + path;
}

enum class Seen { nothing, stop, end };

// The end of a process that the tool has started is left to the thread that waits for it. The process's other threads are
// reaped here, since the tool is their tracer and not their parent: otherwise neither the process's end nor an execve of
// another thread would complete.
bool is_awaited_elsewhere(pid_t tid) { return target::is_own_child(tid); }

// The state of a tracee, without waiting. A stop is only looked at (WNOWAIT): if the tracer is killed, the kernel then still
// delivers the stop's signal. A tracee's end must be taken by the tracer before its parent is told of it.
Seen look(pid_t tid, int& status) {
  siginfo_t info{};
  constexpr int kHow = WSTOPPED | WEXITED | WNOHANG | WNOWAIT | __WALL;
  if (::waitid(P_PID, static_cast<id_t>(tid), &info, kHow) != 0) return errno == ECHILD ? Seen::end : Seen::nothing;
  if (info.si_pid != tid) return Seen::nothing;
  if (info.si_code != CLD_TRAPPED && info.si_code != CLD_STOPPED) {
    if (!is_awaited_elsewhere(tid)) ::waitid(P_PID, static_cast<id_t>(tid), &info, WEXITED | WNOHANG | __WALL);
    return Seen::end;
  }
  status = info.si_status;  // signal | event << 8
  return Seen::stop;
}

// A thread stays in a group stop until SIGCONT; from that stop's end, and from the tool's own interruption, it is continued.
bool is_group_stop(int status) {
  const int signal = status & 0x7f;
  return status >> 8 == PTRACE_EVENT_STOP &&
         (signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU);
}

// Whether the calling thread traces the first thread of a process. For a child of the tool waitid cannot tell, since it reports
// a child in any case.
bool is_traced_here(pid_t pid) { return procfs::tracer_of(pid) == ::gettid(); }

}  // namespace

ExecFollower::~ExecFollower() {
  const std::vector<Pending> left = pending_;
  for (const Pending& p : left) failed(p.tid);
  step();  // reaps those that have been killed
}

bool ExecFollower::is_in_execve(pid_t pid) const {
  return std::any_of(pending_.begin(), pending_.end(), [pid](const Pending& p) { return p.pid == pid; });
}

bool ExecFollower::is_queued(pid_t pid) const {
  return std::any_of(queue_.begin(), queue_.end(), [pid](const Queued& q) { return q.call.pid == pid; });
}

// In order of arrival: a thread whose calls fail and which tries again delays no other thread.
bool ExecFollower::begins(Call call, Waiting waiting) {
  if (!is_in_execve(call.pid) && !is_queued(call.pid)) return seize(call), true;
  queue_.push_back({std::move(call), std::move(waiting), std::chrono::steady_clock::now()});
  return false;
}

void ExecFollower::seize(const Call& call) {
  auto before = credentials_of(call.tid);  // execve asks those of the thread that calls it
  if (!before) {
    notes_.insert(call.path + " runs untraced: the credentials of its caller cannot be read: " + before.error().text);
    return;
  }
  const bool is_trusted = ::geteuid() == 0 && is_of_tool(*before);
  const std::string path = path_from_here(call.tid, call.path, call.folder);
  const auto gives = is_trusted ? false : proxy::gives_privileges(proxy::Foreign(call.tid).user(), path);
  if (!gives || *gives) {
    notes_.insert(call.path +
                  (gives ? " runs untraced: it is set-id" : " runs untraced: its file system does not answer"));
    return;
  }
  constexpr std::chrono::milliseconds kPatience{100};  // a thread that has announced no call is in execve
  if (const int error = target::seize(call.tid, PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD, kPatience); error != 0) {
    notes_.insert(call.path + " runs untraced: ptrace: " + std::strerror(error));
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  pending_.push_back({.pid = call.pid,
                      .tid = call.tid,
                      .before = before.take(),
                      .next_doubt = now + std::chrono::milliseconds(2),
                      .since = now});
}

std::chrono::nanoseconds ExecFollower::pace() const {
  constexpr std::chrono::milliseconds kSoon{100}, kLate{2};
  constexpr std::chrono::microseconds kAtOnce{100};
  const auto now = std::chrono::steady_clock::now();
  const bool is_late =
      queue_.empty() && std::ranges::all_of(pending_, [&](const Pending& p) { return now - p.since > kSoon; });
  return is_late ? std::chrono::nanoseconds(kLate) : kAtOnce;
}

// True when the thread waits no more.
bool ExecFollower::advance(Queued& queued) {
  constexpr auto kPatience = std::chrono::seconds(1);
  if (is_in_execve(queued.call.pid)) {
    if (std::chrono::steady_clock::now() - queued.since < kPatience) return false;
    notes_.insert(queued.call.path + " runs untraced: other threads of its process were in execve for a second");
  } else if (queued.waiting.still_asks()) {
    seize(queued.call);
  } else {
    return queued.waiting.forget(), true;
  }
  return queued.waiting.answer(), true;
}

void ExecFollower::answer_all() {
  for (const Queued& queued : std::exchange(queue_, {})) queued.waiting.answer();
}

void ExecFollower::failed(pid_t tid) {
  const auto found = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& p) { return p.tid == tid; });
  if (found == pending_.end()) return;
  // A thread that was killed has to be reaped here (step) before its parent is told.
  found->given_up = true;
  if (::ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr) != 0) return;
  int status = 0;
  Seen seen = Seen::nothing;
  for (int i = 0; i < 2000 && (seen = look(tid, status)) == Seen::nothing; ++i) ::usleep(100);
  if (seen == Seen::nothing) return;
  pending_.erase(found);
  if (seen == Seen::end) return;
  // Detaching from a group stop leaves the thread stopped, as it was before it was seized.
  const int signal = status >> 8 == 0 ? status & 0x7f : 0;
  ::ptrace(PTRACE_DETACH, tid, nullptr, target::as_data(signal));
}

void ExecFollower::step() {
  for (std::size_t i = 0; i < pending_.size();) {
    if (look_at(pending_[i]))
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    else
      ++i;
  }
  // One at a time: a thread that was let go is pending now.
  for (std::size_t i = 0; i < queue_.size();) {
    if (advance(queue_[i]))
      queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(i));
    else
      ++i;
  }
}

// Whether another thread has taken over the id of the one that is waited for. That is rare, and asked rarely.
bool ExecFollower::is_doubtful(Pending& p) {
  constexpr auto kPause = std::chrono::milliseconds(2);
  const auto now = std::chrono::steady_clock::now();
  if (now < p.next_doubt) return false;
  p.next_doubt = now + kPause;
  return !is_traced_here(p.pid);
}

// True when there is nothing more to wait for.
bool ExecFollower::look_at(Pending& p) {
  int status = 0;
  const Seen thread = look(p.tid, status);
  if (thread == Seen::stop) return handle_stop(p, p.tid, status);
  if (p.pid != p.tid && thread == Seen::nothing) return false;
  // When execve of another thread than the first one succeeds, that thread takes over the first one's id. It may be the
  // followed thread, or one that has not announced its call and is not traced.
  const Seen leader = p.pid == p.tid ? thread : look(p.pid, status);
  if (leader == Seen::stop) return handle_stop(p, p.pid, status);
  if (leader == Seen::nothing && !is_doubtful(p)) return false;
  if (leader == Seen::nothing && !p.given_up)
    notes_.insert("a program runs untraced after an execve that its process did not announce");
  return true;
}

namespace {

// Valgrind executes the program in translation, and would not pass its breakpoints on.
bool is_valgrind(pid_t pid) {
  const auto environment = proxy::read_of(pid, procfs::path(pid, "environ"));
  return procfs::link(pid, "exe").ends_with("-linux") && environment &&
         ('\0' + *environment).find(std::string("\0VALGRIND_LAUNCHER=", 19)) != std::string::npos;
}

}  // namespace

// The file may have been exchanged since its call was announced, so the credentials of the new process decide.
Status ExecFollower::load(const Pending& p, target::PtraceTarget& target) {
  if (is_valgrind(target.pid()))
    return Error{.code = Code::refused, .text = "valgrind executes it in translation, where no probe can be"};
  const auto after = credentials_of_stopped(target);
  if (!after) return after.error();
  if (!is_of_tool(p.before) && has_gained(p.before, *after))
    return Error{.code = Code::refused, .text = "execve has changed its credentials"};
  return load_(target, *after);
}

bool ExecFollower::handle_stop(Pending& p, pid_t who, int status) {
  if (p.given_up) return ::ptrace(PTRACE_DETACH, who, nullptr, nullptr) == 0;
  if (status != kExecEvent) {
    const int signal = status >> 8 == 0 ? status & 0x7f : 0;
    ::ptrace(is_group_stop(status) ? PTRACE_LISTEN : PTRACE_CONT, who, nullptr, target::as_data(signal));
    return false;
  }
  if (!is_ready_(p.pid)) return false;
  // A thread other than the first one has another id now, and ptrace fails with ESRCH until this stop has been taken
  // (kernel/ptrace.c, looks_like_a_spurious_pid).
  while (::waitpid(who, &status, __WALL | WNOHANG) < 0 && errno == EINTR) {
  }
  auto target = target::PtraceTarget::adopt(p.pid);
  const Status loaded = target ? load(p, **target) : Status(target.error());
  if (!loaded) notes_.insert("a program runs untraced after execve: " + loaded.error().text);
  // If it was killed at this point the tool still traces it, and its parent waits until the tool has seen its end.
  p.given_up = !target || !(*target)->release();
  return !p.given_up;
}

}  // namespace uprobe::control
