// SPDX-License-Identifier: MIT
// The handlers, and the end of the process. See signals.h.
#include "cli/signals.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <ctime>

namespace uprobe::cli {

namespace {

constexpr std::array kCaught = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGPIPE};
constexpr std::array kSetLater = {SIGCHLD, SIGTTOU, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU, SIGXFSZ, SIGTSTP, SIGCONT};
constexpr std::array kCaughtAttaching = {SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU, SIGXFSZ, SIGTSTP, SIGCONT};
constexpr useconds_t kStoppedPoll = 20'000;
constexpr std::int64_t kSecondPress = 2'000'000'000;

// Shared with the handlers. Plain words suffice, since one thread handles signals and each word is complete in itself.
volatile sig_atomic_t g_tool = 0;
volatile sig_atomic_t g_child = 0;  // 0: not started
volatile sig_atomic_t g_child_handle = -1;
volatile sig_atomic_t g_no_program = 0;
volatile sig_atomic_t g_ignored[NSIG];  // at the tool's start
volatile sig_atomic_t g_detach = 0;
volatile sig_atomic_t g_attaching = 0;
volatile sig_atomic_t g_reopens = 0, g_reopen = 0;  // whether SIGHUP may ask for that, and whether it has
volatile sig_atomic_t g_shows = 0, g_show = 0;      // likewise SIGUSR1
volatile sig_atomic_t g_followed = 0;               // 0: this process is not a tracer
volatile sig_atomic_t g_stopped = 0;                // the launcher is stopped
volatile sig_atomic_t g_waiting[NSIG];              // came before the program had started
volatile std::int64_t g_last_interrupt = 0;

struct sigaction g_before_caught[kCaught.size()];
struct sigaction g_before_later[kSetLater.size()];

std::int64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Through a pidfd if there is one: the process id may belong to another process by now.
void pass_on(int signal) {
  if (g_child_handle >= 0)
    ::syscall(SYS_pidfd_send_signal, int{g_child_handle}, signal, nullptr, 0);
  else
    ::kill(g_child, signal);
}

void note_interrupt() {
  const std::int64_t time = now();
  if (g_last_interrupt != 0 && time - g_last_interrupt <= kSecondPress) g_detach = 1;
  g_last_interrupt = time;
}

// A forked child that has not called exec yet still has these handlers: there a signal has to act as it would without them.
void act_as_default(int signal) {
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void handle_attaching(int signal) {
  if (signal == SIGPIPE || signal == SIGXFSZ) return;
  if (signal == SIGTSTP)
    g_stopped = 1;
  else if (signal == SIGCONT)
    g_stopped = 0;
  else
    g_detach = 1;
}

void handle(int signal, siginfo_t* info, void*) {
  const int saved = errno;
  if (::getpid() != g_tool) {
    act_as_default(signal);
  } else if (signal == SIGHUP && g_reopens != 0 && !came_from_terminal(info->si_code)) {
    g_reopen = 1;
  } else if (signal == SIGUSR1 && g_shows != 0 && !came_from_terminal(info->si_code)) {
    g_show = 1;
  } else if (g_attaching != 0) {
    handle_attaching(signal);
  } else if (signal != SIGPIPE) {
    if (signal == SIGINT && g_ignored[signal] == 0) note_interrupt();
    if (g_no_program != 0)
      g_detach = g_detach != 0 || g_ignored[signal] == 0 ? 1 : 0;
    else if (g_child == 0)
      g_waiting[signal] = came_from_terminal(info->si_code) ? 0 : 1;
    else if (!came_from_terminal(info->si_code))
      pass_on(signal);
  }
  errno = saved;
}

void forget_everything() {
  g_tool = ::getpid();
  g_child = 0;
  g_no_program = 0;
  g_detach = 0;
  g_attaching = 0;
  g_stopped = 0;
  g_reopens = 0;
  g_reopen = 0;
  g_shows = 0;
  g_show = 0;
  g_last_interrupt = 0;
  for (volatile sig_atomic_t& waiting : g_waiting) waiting = 0;
}

struct sigaction our_action() {
  struct sigaction ours {};
  ours.sa_sigaction = handle;
  ours.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigemptyset(&ours.sa_mask);
  return ours;
}

}  // namespace

Signals::Signals() {
  forget_everything();
  const struct sigaction ours = our_action();
  for (std::size_t i = 0; i < kCaught.size(); ++i) {
    ::sigaction(kCaught[i], nullptr, &g_before_caught[i]);
    g_ignored[kCaught[i]] = g_before_caught[i].sa_handler == SIG_IGN ? 1 : 0;
    if (g_ignored[kCaught[i]] == 0) ::sigaction(kCaught[i], &ours, nullptr);
  }
  for (std::size_t i = 0; i < kSetLater.size(); ++i) ::sigaction(kSetLater[i], nullptr, &g_before_later[i]);
}

Signals::~Signals() {
  for (std::size_t i = 0; i < kCaught.size(); ++i) ::sigaction(kCaught[i], &g_before_caught[i], nullptr);
  for (std::size_t i = 0; i < kSetLater.size(); ++i) ::sigaction(kSetLater[i], &g_before_later[i], nullptr);
  if (g_child_handle >= 0) ::close(g_child_handle);
  g_child_handle = -1;
}

void Signals::child_started(int pid) {
  g_child_handle = static_cast<sig_atomic_t>(::syscall(SYS_pidfd_open, pid, 0));
  g_child = pid;
  ::signal(SIGCHLD, SIG_DFL);
  ::signal(SIGTTOU, SIG_IGN);
  // By now the program has inherited the ignored signals.
  const struct sigaction ours = our_action();
  for (const int signal : kCaught)
    if (signal != SIGPIPE) ::sigaction(signal, &ours, nullptr);
  for (const int signal : kCaught) {
    if (g_waiting[signal] == 0) continue;
    g_waiting[signal] = 0;
    pass_on(signal);
  }
}

void Signals::no_program() { g_no_program = 1; }

void Signals::attaching() {
  g_attaching = 1;
  ::signal(SIGTTOU, SIG_IGN);
  const struct sigaction ours = our_action();
  for (const int signal : kCaughtAttaching) ::sigaction(signal, &ours, nullptr);
  for (const int signal : kCaught)
    if (g_waiting[signal] != 0) g_detach = 1;
}

void Signals::reopen_at_hangup() { g_reopens = 1; }

bool Signals::take_reopen() {
  if (g_reopen == 0) return false;
  g_reopen = 0;
  return true;
}

void Signals::show_at_user_signal() {
  g_shows = 1;
  const struct sigaction ours = our_action();
  ::sigaction(SIGUSR1, &ours, nullptr);
}

bool Signals::take_show() {
  if (g_show == 0) return false;
  g_show = 0;
  return true;
}

// The parent's end shows in getppid(), even if the signal about it is lost.
bool Signals::detach_requested() const { return g_detach != 0 || (g_followed != 0 && ::getppid() != g_followed); }

bool Signals::is_launcher_stopped() const { return g_stopped != 0; }

void Signals::wait_for_launcher() const {
  while (is_launcher_stopped() && !detach_requested()) ::usleep(kStoppedPoll);
}

void Signals::follow_launcher(int launcher) { g_followed = launcher; }

bool came_from_terminal(int signal_code) { return signal_code == SI_KERNEL; }

void end_as(const Outcome& outcome) {
  if (outcome.signal == 0) ::_exit(outcome.code);
  // The program has left its core file, if it was to leave one. A core handler at the end of a pipe obeys only the second call.
  const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  ::signal(outcome.signal, SIG_DFL);
  sigset_t one;
  ::sigemptyset(&one);
  ::sigaddset(&one, outcome.signal);
  ::sigprocmask(SIG_UNBLOCK, &one, nullptr);
  ::raise(outcome.signal);
  ::_exit(128 + outcome.signal);
}

}  // namespace uprobe::cli
