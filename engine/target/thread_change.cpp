// SPDX-License-Identifier: MIT
#include "engine/target/thread_change.h"

#include <pthread.h>
#include <setjmp.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "engine/base/procfs.h"
#include "engine/target/target.h"

namespace uprobe::target {
namespace {

// ---- a system call that the kernel would begin again after every signal (ERESTARTNOINTR): its thread jumps out of the handler

const int kAlarm = SIGRTMIN + 7;
thread_local sigjmp_buf t_way_out;
thread_local volatile sig_atomic_t t_is_waiting = 0;

void leave(int) {
  if (t_is_waiting == 0) return;
  t_is_waiting = 0;
  ::siglongjmp(t_way_out, 1);
}

// False: the program that uses the library has the signal for itself.
bool has_handler() {
  static const bool installed = [] {
    struct sigaction before {
    }, ours{};
    ours.sa_handler = leave;
    return ::sigaction(kAlarm, nullptr, &before) == 0 && before.sa_handler == SIG_DFL &&
           ::sigaction(kAlarm, &ours, nullptr) == 0;
  }();
  return installed;
}

// Sends the signal to the calling thread again and again, from `patience` on: the first one may come before the call.
class Alarm {
 public:
  explicit Alarm(std::chrono::milliseconds patience) {
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = kAlarm;
    event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));
    if (!has_handler() || ::timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0) return;
    is_made_ = true;
    constexpr long kAgain = 10'000'000;
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(patience);
    const itimerspec when{{0, kAgain}, {whole.count(), std::chrono::nanoseconds(patience - whole).count()}};
    ::timer_settime(timer_, 0, &when, nullptr);
    sigset_t open;
    ::sigemptyset(&open);
    ::sigaddset(&open, kAlarm);
    ::pthread_sigmask(SIG_UNBLOCK, &open, &before_);
  }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  ~Alarm() {
    if (!is_made_) return;
    ::timer_delete(timer_);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  timer_t timer_{};
  sigset_t before_{};
  bool is_made_ = false;
};

// What is set between the two returns of sigsetjmp is not looked at after the second one.
int seize_until_alarm(pid_t tid, void* options) {
  if (sigsetjmp(t_way_out, 1) != 0) return ETIMEDOUT;  // NOLINT(cert-err52-cpp): nothing is to be destroyed on the way
  t_is_waiting = 1;
  const int error = ::ptrace(PTRACE_SEIZE, tid, nullptr, options) == 0 ? 0 : errno;
  t_is_waiting = 0;
  return error;
}

bool is_traced_by_this_thread(pid_t tid) {
  const auto status = procfs::read(tid, "status");
  return status && procfs::number(*status, "TracerPid") == ::syscall(SYS_gettid);
}

}  // namespace

int seize(pid_t tid, std::uintptr_t options, std::chrono::milliseconds patience) {
  const Alarm alarm(patience);
  const int error = seize_until_alarm(tid, as_data(options));
  return error == ETIMEDOUT && is_traced_by_this_thread(tid) ? 0 : error;  // the signal came as the call returned
}

pid_t take_change(pid_t tid, int& status, int how) {
  const auto id = static_cast<id_t>(tid);
  siginfo_t info{};
  if (::waitid(P_PID, id, &info, WSTOPPED | WEXITED | WNOWAIT | __WALL | how) != 0) return -1;
  if (info.si_pid != tid) return 0;
  const bool has_stopped = info.si_code == CLD_TRAPPED || info.si_code == CLD_STOPPED;
  status = has_stopped ? info.si_status << 8 | 0x7f : 0;
  if (has_stopped) return ::waitid(P_PID, id, &info, WSTOPPED | WNOHANG | __WALL) == 0 ? tid : -1;
  take_end(tid);
  return tid;
}

Error ptrace_error(const char* what) { return errno == ESRCH ? process_ended() : system_error(what, errno); }

void take_end(pid_t tid) {
  const auto id = static_cast<id_t>(tid);
  siginfo_t info{};
  const bool is_over = ::waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 && info.si_pid == tid;
  if (!is_over || is_own_child(tid)) return;  // the end of a child is awaited elsewhere
  ::waitid(P_PID, id, &info, WEXITED | WNOHANG | __WALL);
}

}  // namespace uprobe::target
