// SPDX-License-Identifier: MIT
#include "cli/daemonize.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <utility>

#include "cli/diagnostics.h"
#include "cli/options.h"
#include "cli/run.h"
#include "engine/base/procfs.h"
#include "engine/base/start_line.h"

namespace uprobe::cli {
namespace {

constexpr pid_t kFirstProcess = 1;

// Set in the tool.
pid_t g_program = 0;
Fd g_line;

// Nothing: this call has no -D.
std::optional<std::vector<std::string>> program_in(const std::vector<std::string>& arguments) {
  const Result<Options> options = parse_options(arguments);
  if (!options || options->mode != Mode::trace || !options->daemonize) return std::nullopt;
  return options->program;
}

// After unshare -p the first child is process 1 of a new namespace, and the program is outside of it.
bool is_divided() { return procfs::link("/proc/self/ns/pid") != procfs::link("/proc/self/ns/pid_for_children"); }

// Whether this process has children: it may be a shell that has started some before it called exec.
bool has_children() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0;
}

[[noreturn]] void stay_between() {
  ::setsid();
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  (void)!::chdir("/");
  ::syscall(SYS_close_range, 0U, ~0U, 0U);
  while (::waitpid(-1, nullptr, __WALL) > 0 || errno == EINTR) {
  }
  ::_exit(0);
}

// Returns in the tool alone.
void divide(bool stays) {
  if (stays) ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  const pid_t tool = ::fork();
  if (tool == 0) return;
  if (tool > 0 && stays) stay_between();
  ::_exit(0);
}

enum class Role { waiting, tool };

// The intermediate process must leave no trace in its parent: neither a signal nor CPU times. A child that ends while SIGCHLD
// is ignored leaves none; if there are other children, which must not end that way, the intermediate process is a child without
// an exit signal.
Role start_tool() {
  const bool stays = ::getpid() == kFirstProcess, is_ignored = !stays && !has_children();
  int is_reaper = 0;
  ::prctl(PR_GET_CHILD_SUBREAPER, &is_reaper, 0, 0, 0);
  if (is_reaper != 0) ::prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
  struct sigaction ignored {};
  struct sigaction before {};
  ignored.sa_handler = SIG_IGN;
  if (is_ignored) ::sigaction(SIGCHLD, &ignored, &before);
  const long between = ::syscall(SYS_clone, is_ignored ? SIGCHLD : 0, nullptr, nullptr, nullptr, nullptr);
  if (between == 0) divide(stays);
  while (between > 0 && !stays && ::waitpid(static_cast<pid_t>(between), nullptr, __WALL) < 0 && errno == EINTR) {
  }
  if (is_ignored) ::sigaction(SIGCHLD, &before, nullptr);
  if (between == 0) return Role::tool;
  if (is_reaper != 0) ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  return Role::waiting;
}

// Yama lets a process trace its descendants alone, unless the other process permits it. Without Yama this call fails.
void admit(int line, int tool) {
  ::prctl(PR_SET_PTRACER, static_cast<unsigned long>(tool), 0, 0, 0);
  send_number(line, 0);
}

// An Error: execve has failed. A number: the exit code, because there will be no program.
Result<int> become(int line, const std::vector<std::string>& program) {
  const auto order = await_order(line);
  if (!order) return Error{.code = Code::system, .text = "the tool has ended; the program was not started"};
  if (order->path.empty()) return order->code;
  std::vector<char*> words;
  words.reserve(program.size() + 1);
  for (const std::string& word : program) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execv(order->path.c_str(), words.data());
  return exec_error(order->path, errno);
}

Outcome wait_as_program(int line, const std::vector<std::string>& program, const Diagnostics& diagnostics) {
  const auto tool = await_number(line);
  if (tool) admit(line, *tool);
  const Result<int> ended = become(line, program);
  if (ended) return {*ended, 0};
  diagnostics.error(ended.error());
  return {exit_code_of_launch(ended.error()), 0};
}

// A memory file, if there is no /dev.
Fd open_nothing() {
  Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  return null ? std::move(null) : Fd(::memfd_create("null", MFD_CLOEXEC));
}

void turn_away(int first, int last) {
  const Fd null = open_nothing();
  for (int stream = first; null && stream <= last; ++stream) ::dup2(null.get(), stream);
}

// execve closes the files that the tool has opened, but not those that it was given.
void close_inherited() {
  const std::unique_ptr<DIR, int (*)(DIR*)> all(::opendir("/proc/self/fd"), ::closedir);
  while (const dirent* entry = all ? ::readdir(all.get()) : nullptr) {
    const int fd = std::atoi(entry->d_name);
    if (fd > STDERR_FILENO && (::fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0) ::close(fd);
  }
}

}  // namespace

std::optional<Outcome> run_daemonized(const std::vector<std::string>& arguments, const Streams& streams) {
  const auto program = program_in(arguments);
  if (!program) return std::nullopt;
  const Diagnostics diagnostics(streams.err, use_color(early_color(arguments), streams.err));
  const auto fail = [&](const Error& error) {
    diagnostics.error(error);
    return Outcome{kExitFailure, 0};
  };
  if (is_divided())
    return fail({.code = Code::refused, .text = "with -D the tool would be in another PID namespace than the program"});
  auto ends = make_start_line();
  if (!ends) return fail(system_error("socketpair", errno));
  auto& [its, ours] = *ends;
  const pid_t called = ::getpid();
  if (start_tool() == Role::waiting) {
    its.reset();
    return wait_as_program(ours.get(), *program, diagnostics);
  }
  g_program = called;
  g_line = std::move(its);
  send_number(g_line.get(), ::getpid());
  return std::nullopt;
}

WaitingProcess waiting_process() { return {.pid = g_program, .line = g_line.get()}; }

void step_aside() {
  if (g_program == 0) return;
  ::setsid();
  turn_away(STDIN_FILENO, STDOUT_FILENO);
  close_inherited();
}

void fall_silent() {
  if (g_program != 0) turn_away(STDERR_FILENO, STDERR_FILENO);
}

// Yama lets a tool trace its descendants, and processes that name it: the program's children are neither.
std::string restriction_on_children() {
  const std::string scope = procfs::ptrace_scope();
  if (scope.empty() || scope == "0" || ::geteuid() == 0) return {};
  return "kernel.yama.ptrace_scope is in force: libraries and programs that the program's children load are not probed";
}

void dismiss_waiting(const Outcome& outcome) {
  if (g_program != 0) send_order(g_line.get(), {.path = {}, .code = outcome.code});
}

}  // namespace uprobe::cli
