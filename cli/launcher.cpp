// SPDX-License-Identifier: MIT
#include "cli/launcher.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>

#include "cli/diagnostics.h"
#include "cli/options.h"
#include "cli/run.h"
#include "engine/base/roles.h"

namespace uprobe::cli {
namespace {

// The tracer's messages to its launcher: about the terminal, and when it goes on without the launcher.
struct Farewell {
  std::atomic<bool> said{false};
  std::atomic<bool> has_terminal{false};  // it draws on the terminal, and reads keys
  Outcome outcome;
};

pid_t g_launcher = 0;            // set in its tracer
Farewell* g_farewell = nullptr;  // shared by the two

constexpr int kPassedOn[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP};

// Nothing: this call attaches to no process.
std::optional<Selection> selection_in(const std::vector<std::string>& arguments) {
  const Result<Options> options = parse_options(arguments);
  if (!options || options->mode != Mode::trace || !attaches(*options)) return std::nullopt;
  return options->attach;
}

// The signals to pass on. Ignored and blocked ones stay so, as if there were one process.
sigset_t heeded() {
  sigset_t blocked, found;
  ::sigprocmask(SIG_BLOCK, nullptr, &blocked);
  ::sigemptyset(&found);
  ::sigaddset(&found, SIGCHLD);
  for (const int number : kPassedOn) {
    struct sigaction now {};
    ::sigaction(number, nullptr, &now);
    if (now.sa_handler != SIG_IGN && ::sigismember(&blocked, number) == 0) ::sigaddset(&found, number);
  }
  return found;
}

// A tracer that draws on the terminal gives it back before the shell takes it.
void wait_for_terminal() {
  constexpr int kMostLooks = 200;
  constexpr useconds_t kBetween = 5'000;
  for (int i = 0; i < kMostLooks && g_farewell->has_terminal; ++i) ::usleep(kBetween);
}

// In an orphaned process group the kernel ignores the raised SIGTSTP, and this continues at once.
void stop_with(pid_t tracer) {
  ::kill(tracer, SIGTSTP);
  wait_for_terminal();
  sigset_t one;
  ::sigemptyset(&one);
  ::sigaddset(&one, SIGTSTP);
  ::raise(SIGTSTP);
  ::sigprocmask(SIG_UNBLOCK, &one, nullptr);
  ::sigprocmask(SIG_BLOCK, &one, nullptr);
  ::kill(tracer, SIGCONT);
}

Farewell* share_farewell() {
  void* const page = ::mmap(nullptr, sizeof(Farewell), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return page == MAP_FAILED ? nullptr : new (page) Farewell;
}

// The status of the tracer when it has ended; nothing where it has sent its farewell and goes on.
std::optional<int> wait_for(pid_t tracer, const sigset_t& signals) {
  for (;;) {
    int status = 0;
    if (::waitpid(tracer, &status, WNOHANG) == tracer) return status;
    if (g_farewell->said) return std::nullopt;
    siginfo_t info{};
    int number = ::sigwaitinfo(&signals, &info);
    if (number == SIGTSTP) stop_with(tracer);
    if (number == SIGHUP && came_from_terminal(info.si_code)) number = SIGTERM;  // the tracer cannot see the difference
    if (number > 0 && number != SIGCHLD && number != SIGTSTP) ::kill(tracer, number);
  }
}

void hide(char** words, std::size_t count) {
  char* const begin = words[0];
  const auto bytes = static_cast<std::size_t>(words[count - 1] + std::strlen(words[count - 1]) - begin);
  std::memset(begin, 0, bytes);
  std::memcpy(begin, kTracerName, std::min(bytes, std::strlen(kTracerName)));
}

void begin_tracer(pid_t launcher, const sigset_t& before) {
  ::setsid();
  ::prctl(PR_SET_NAME, kTracerName);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  Signals::follow_launcher(launcher);
  g_launcher = launcher;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

// A signal such as SIGTERM that ends the tracer before it has installed handlers ends the launcher in the same way.
bool is_passed_on(int signal) {
  return std::find(std::begin(kPassedOn), std::end(kPassedOn), signal) != std::end(kPassedOn);
}

Outcome outcome_of(int status, const Selection& whom, Engine& engine, const Diagnostics& diagnostics) {
  if (WIFEXITED(status)) return {WEXITSTATUS(status), 0};
  const int signal = WTERMSIG(status);
  const Status released = engine.release(whom);
  if (is_passed_on(signal)) return {0, signal};
  diagnostics.line("the tracer was killed by signal " + std::to_string(signal) +
                   (released ? "; its probes are removed" : ""));
  if (!released) diagnostics.error(released.error());
  return {kExitFailure, 0};
}

// A reader of the tool's output has got all of it.
void drop_streams() {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int stream = STDIN_FILENO; null >= 0 && stream <= STDERR_FILENO; ++stream) ::dup2(null, stream);
  if (null > STDERR_FILENO) ::close(null);
}

}  // namespace

void leave_launcher(const Outcome& outcome) {
  if (g_launcher == 0) return;
  ::prctl(PR_SET_PDEATHSIG, 0);
  drop_streams();
  g_farewell->outcome = outcome;
  g_farewell->said = true;
  if (::getppid() == g_launcher) ::kill(g_launcher, SIGCHLD);
}

void tell_of_terminal(bool is_taken) {
  if (g_launcher != 0) g_farewell->has_terminal = is_taken;
}

int visible_pid() { return g_launcher != 0 ? g_launcher : ::getpid(); }

std::optional<Outcome> run_as_launcher(const std::vector<std::string>& arguments, char** words, Engine& engine,
                                       const Streams& streams) {
  const std::optional<Selection> whom = selection_in(arguments);
  if (!whom) return std::nullopt;
  const Diagnostics diagnostics(streams.err, use_color(early_color(arguments), streams.err));
  ::signal(SIGCHLD, SIG_DFL);
  sigset_t before;
  const sigset_t signals = heeded();
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  g_farewell = share_farewell();
  const pid_t launcher = ::getpid(), child = g_farewell != nullptr ? ::fork() : -1;
  if (child < 0) {
    diagnostics.error(system_error("fork", errno));
    return Outcome{kExitFailure, 0};
  }
  if (child == 0) {
    begin_tracer(launcher, before);
    hide(words, arguments.size());
    return std::nullopt;
  }
  ::prctl(PR_SET_NAME, kLauncherName);
  const std::optional<int> status = wait_for(child, signals);
  return status ? outcome_of(*status, *whom, engine, diagnostics) : g_farewell->outcome;
}

}  // namespace uprobe::cli
