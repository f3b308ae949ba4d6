// SPDX-License-Identifier: MIT
// Launch by ptrace. Traps that this file knows about:
//   - registers set at PTRACE_EVENT_EXEC are overwritten (the result becomes 0): go on to the exit of the system call first;
//   - single-step and int3 as the end of a remote call reset an ignored SIGTRAP: PTRACE_SYSCALL stops, or the delivery of a
//     signal that the thread sends itself;
//   - signals that arrive during a remote call must neither be lost nor run a handler: everything else is masked;
//   - a tracer that is killed leaves the tracee with the registers and the mask of that moment (return_path.h).
#include "engine/target/ptrace_target.h"

#include <elf.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/base/start_line.h"
#include "engine/target/seccomp.h"
#include "engine/target/thread_change.h"

namespace uprobe::target {
namespace {

constexpr int kExecStop = SIGTRAP | PTRACE_EVENT_EXEC << 8;

// A tracee that was killed has to be taken by its tracer before its own parent is told; it may still be on its way out.
void bury(pid_t pid) {
  int status = 0;
  for (int i = 0; i < 1000 && ::waitpid(pid, &status, __WALL | WNOHANG) == 0; ++i) ::usleep(1000);
}

Error gone(int status) {
  return Error{.code = WIFSIGNALED(status) ? Code::killed : Code::system,
               .text = "the program ended before it started to run",
               .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
}

// In the child, after fork: wait until we are traced, then become the program. Reports a failed execve to the parent.
[[noreturn]] void become(char* const* argv, int parent, const LaunchHooks& hooks) {
  const auto order = await_order(parent);
  if (!order) ::_exit(125);
  if (hooks.in_child != nullptr) hooks.in_child();
  ::execv(order->path.c_str(), argv);
  send_number(parent, errno);
  ::_exit(127);
}

Status seize_child(pid_t pid) {
  constexpr std::chrono::seconds kOfAChild{10};
  const int error = seize(pid, PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD, kOfAChild);
  if (error == 0) return ok();
  return Error{.code = Code::system,
               .text = std::string("ptrace of the program to start: ") + std::strerror(error),
               .where = {},
               .column = -1,
               .help = "a container or security module may forbid ptrace",
               .err = error};
}

bool is_stop_signal(int signal) {
  return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

// A stop by a terminal or by SIGSTOP lasts until SIGCONT.
bool is_group_stop(int status) { return status >> 16 == PTRACE_EVENT_STOP && is_stop_signal(WSTOPSIG(status)); }

// The status with which it stands at the end of its execve, or has ended.
int wait_for_exec(pid_t pid) {
  int status = 0;
  for (;;) {
    if (::waitpid(pid, &status, __WALL) < 0) {
      if (errno == EINTR) continue;
      return 0;
    }
    if (!WIFSTOPPED(status) || status >> 8 == kExecStop) return status;
    const int signal = status >> 16 == 0 ? WSTOPSIG(status) : 0;
    ::ptrace(is_group_stop(status) ? PTRACE_LISTEN : PTRACE_CONT, pid, nullptr, as_data(signal));
  }
}

bool may_change_maps(long number) { return number != SYS_rt_sigaction && number != SYS_openat && number != SYS_close; }

}  // namespace

Result<std::unique_ptr<PtraceTarget>> PtraceTarget::launch(const std::string& path,
                                                           const std::vector<std::string>& argv,
                                                           const LaunchHooks& hooks) {
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  auto ends = make_start_line();  // one pair of descriptors: the limit, which the program inherits, may be low
  if (!ends) return system_error("socketpair", errno);
  auto& [to_child, to_parent] = *ends;

  const pid_t pid = ::fork();
  if (pid < 0) return system_error("fork", errno);
  if (pid == 0) {
    to_child.reset();
    become(words.data(), to_parent.get(), hooks);
  }
  to_parent.reset();
  if (const Status done = hooks.in_parent ? hooks.in_parent() : ok(); !done) {
    to_child.reset();  // it ends
    bury(pid);
    return done.error();
  }
  if (const Status seized = seize_child(pid); !seized) {
    to_child.reset();
    const int status = wait_for_exec(pid);
    return WIFSIGNALED(status) ? gone(status) : seized.error();
  }
  send_order(to_child.get(), {.path = path});
  const int status = wait_for_exec(pid);
  if (WIFSTOPPED(status)) return stopped_at_exec(pid);
  if (const auto error = take_number(to_child.get())) return exec_error(path, *error);
  return gone(status);
}

// It tells its user of a failed execve itself, and ends.
Result<std::unique_ptr<PtraceTarget>> PtraceTarget::launch_waiting(pid_t pid, int line, const std::string& path) {
  const Error ended{.code = Code::killed, .text = "the program ended before it started to run", .signal = SIGKILL};
  if (!await_number(line)) return ended;
  if (const Status seized = seize_child(pid); !seized) return seized.error().err == ESRCH ? ended : seized.error();
  send_order(line, {.path = path});
  if (!WIFSTOPPED(wait_for_exec(pid))) return ended;
  return stopped_at_exec(pid);
}

Result<std::unique_ptr<PtraceTarget>> PtraceTarget::stopped_at_exec(pid_t pid) {
  auto files = ProcessFiles::open(pid);
  if (!files) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, __WALL);
    return files.error();
  }
  std::unique_ptr<PtraceTarget> target(new PtraceTarget(files.take()));
  RETURN_IF_ERROR(target->prepare());
  return target;
}

Result<std::unique_ptr<PtraceTarget>> PtraceTarget::adopt(pid_t pid) {
  auto files = ProcessFiles::open(pid);
  if (!files) {
    ::ptrace(PTRACE_DETACH, pid, nullptr, nullptr);
    return files.error();
  }
  std::unique_ptr<PtraceTarget> target(new PtraceTarget(files.take()));
  target->ours_ = false;
  RETURN_IF_ERROR(target->prepare());
  return target;
}

PtraceTarget::~PtraceTarget() {
  if (!attached_) return;
  if (!ours_) {
    if (!release() && parent_of(pid()) != ::getpid()) bury(pid());
    return;
  }
  ::kill(pid(), SIGKILL);
  int status = 0;
  ::waitpid(pid(), &status, __WALL);
}

void PtraceTarget::end(int code) {
  if (prepared_) static_cast<void>(system_call(SYS_exit_group, {static_cast<std::uint64_t>(code)}));
}

// As waitpid; nothing where it neither stops nor ends in time. A program that the tool has started holds up no other one.
std::optional<int> PtraceTarget::await_change() const {
  constexpr int kAwake = 100;
  constexpr useconds_t kPause = 100;
  int status = 0;
  const auto deadline = std::chrono::steady_clock::now() + patience_;
  for (int looks = 0;; ++looks) {
    const pid_t seen = ::waitpid(pid(), &status, ours_ ? __WALL : __WALL | WNOHANG);
    if (seen > 0 || (seen < 0 && errno != EINTR)) return status;
    if (std::chrono::steady_clock::now() > deadline && !ours_) return std::nullopt;
    if (seen == 0 && looks < kAwake) ::sched_yield();
    if (seen == 0 && looks >= kAwake) ::usleep(kPause);
  }
}

// Lets it run on with `signal` to its next stop; its status. Where none comes the program is interrupted (a frozen cgroup keeps it
// from its call), and later calls get a moment each.
Result<int> PtraceTarget::run_to_stop(bool stops_at_calls, int signal) {
  if (::ptrace(stops_at_calls ? PTRACE_SYSCALL : PTRACE_CONT, pid(), nullptr, as_data(signal)) != 0)
    return system_error("ptrace", errno);
  auto status = await_change();
  bool is_interrupted = false;
  if (!status) {
    patience_ = std::chrono::milliseconds(100);
    is_interrupted = ::ptrace(PTRACE_INTERRUPT, pid(), nullptr, nullptr) == 0;
    status = await_change();
  }
  const bool is_blocked = !status || (is_interrupted && *status >> 16 == PTRACE_EVENT_STOP);
  if (is_blocked) return Error{.code = Code::refused, .text = "a system call in it does not return"};
  if (WIFSTOPPED(*status)) return *status;
  attached_ = false;
  return gone(*status);
}

// Keeps the signal of a stop for later, if it is one, but those that stop, which SIGCONT may take back at any moment: these are
// returned, to be passed on. The kernel notes that the program is stopped, and stops it when it is let go.
int PtraceTarget::defer_signal(int status) {
  const int signal = status >> 16 == 0 ? WSTOPSIG(status) : 0;
  if (is_stop_signal(signal)) return signal;
  if (signal != 0) deferred_signals_.push_back(signal);
  return 0;
}

// Waits for the next system-call stop.
Result<int> PtraceTarget::next_stop() {
  for (int signal = 0;;) {
    const auto status = run_to_stop(true, signal);
    if (!status || WSTOPSIG(*status) == kSyscallStop) return status;
    signal = defer_signal(*status);
  }
}

Status PtraceTarget::prepare() {
  RETURN_IF_ERROR(next_stop());
  // Until it is released, it makes the tool's calls alone.
  if (shows_filters(status())) {
    passes_filters_ = !can_suspend_filters();
    if (!passes_filters_) RETURN_IF_ERROR(suspend_filters(pid(), true));
  }
  if (::ptrace(PTRACE_GETREGS, pid(), nullptr, &registers_) != 0) return system_error("PTRACE_GETREGS", errno);
  if (::ptrace(PTRACE_GETSIGMASK, pid(), as_data(sizeof mask_), &mask_) != 0)
    return system_error("PTRACE_GETSIGMASK", errno);
  const auto mappings = maps();
  if (!mappings) return mappings.error();
  RETURN_IF_ERROR(return_path_.build(files_, *mappings, registers_, mask_));
  // The return path restores the mask as well: the registers first.
  arch::ThreadRegisters r = registers_;
  return_path_.turn_back(r);
  if (::ptrace(PTRACE_SETREGS, pid(), nullptr, &r) != 0) return system_error("PTRACE_SETREGS", errno);
  std::uint64_t blocked = ~(std::uint64_t{1} << (ListedCalls::kEnd - 1));
  if (::ptrace(PTRACE_SETSIGMASK, pid(), as_data(sizeof blocked), &blocked) != 0)
    return system_error("PTRACE_SETSIGMASK", errno);
  prepared_ = true;
  return ok();
}

Status PtraceTarget::set_signal_mask(std::uint64_t mask) {
  mask_ = mask;
  return return_path_.set_mask(files_, mask);
}

Result<std::vector<Mapping>> PtraceTarget::maps() {
  if (maps_) return *maps_;
  auto read = files_.maps();
  if (read) maps_ = *read;
  return read;
}

Result<std::string> PtraceTarget::status() {
  if (status_) return *status_;
  auto read = Target::status();
  if (read) status_ = *read;
  return read;
}

// A list needs two more calls than the caller has asked for, which a filter might not let pass.
bool PtraceTarget::makes_lists() {
  if (lists_) return lists_->is_built();
  lists_.emplace();
  const auto mappings = maps();
  const auto vdso = mappings ? find_vdso(*mappings) : Result<Mapping>(mappings.error());
  return prepared_ && !passes_filters_ && vdso && lists_->build(files_, *vdso, return_path_.below_frame());
}

std::optional<Addr> PtraceTarget::scratch() { return makes_lists() ? std::optional(lists_->scratch()) : std::nullopt; }

Status PtraceTarget::run_list(arch::ThreadRegisters& r) {
  if (::ptrace(PTRACE_SETREGS, pid(), nullptr, &r) != 0) return system_error("PTRACE_SETREGS", errno);
  for (int signal = 0;;) {
    const auto status = run_to_stop(false, signal);
    if (!status) return status.error();
    if (::ptrace(PTRACE_GETREGS, pid(), nullptr, &r) != 0) return system_error("PTRACE_GETREGS", errno);
    if (*status >> 16 == 0 && WSTOPSIG(*status) == ListedCalls::kEnd && lists_->is_at_end(r)) return ok();
    signal = defer_signal(*status);
  }
}

Status PtraceTarget::make_list(std::span<SystemCall> calls, std::size_t first, std::size_t count) {
  arch::ThreadRegisters r = registers_;
  return_path_.set_out(r);
  RETURN_IF_ERROR(lists_->begin(files_, calls.subspan(first, count), calls.first(first), r));
  RETURN_IF_ERROR(run_list(r));
  return lists_->end(files_, calls.subspan(first, count));
}

Status PtraceTarget::system_calls(std::span<SystemCall> calls) {
  if (!makes_lists()) return Target::system_calls(calls);
  if (std::ranges::any_of(calls, may_change_maps, &SystemCall::number)) maps_.reset();
  for (std::size_t first = 0; first < calls.size(); first += ListedCalls::kMost)
    RETURN_IF_ERROR(make_list(calls, first, std::min(ListedCalls::kMost, calls.size() - first)));
  return ok();
}

Result<std::int64_t> PtraceTarget::system_call(long number, const std::array<std::uint64_t, 6>& a) {
  if (lists_ && lists_->is_built()) {  // one stop instead of two
    SystemCall call{.number = number, .arguments = a};
    RETURN_IF_ERROR(system_calls({&call, 1}));
    return call.result;
  }
  if (may_change_maps(number)) maps_.reset();
  arch::ThreadRegisters r = registers_;
  return_path_.set_out(r);
  arch::set_call(r, number, a);
  if (::ptrace(PTRACE_SETREGS, pid(), nullptr, &r) != 0) return system_error("PTRACE_SETREGS", errno);
  RETURN_IF_ERROR(next_stop());
  RETURN_IF_ERROR(next_stop());
  if (::ptrace(PTRACE_GETREGS, pid(), nullptr, &r) != 0) return system_error("PTRACE_GETREGS", errno);
  return arch::result(r);
}

// The mask while the registers still lead home; then nothing is left that we could leave half done.
Status PtraceTarget::release() {
  if (prepared_) {
    if (::ptrace(PTRACE_SETSIGMASK, pid(), as_data(sizeof mask_), &mask_) != 0)
      return system_error("PTRACE_SETSIGMASK", errno);
    if (::ptrace(PTRACE_SETREGS, pid(), nullptr, &registers_) != 0) return system_error("PTRACE_SETREGS", errno);
    if (lists_) lists_->erase(files_);
    return_path_.erase(files_);
  }
  if (::ptrace(PTRACE_DETACH, pid(), nullptr, nullptr) != 0) return system_error("PTRACE_DETACH", errno);
  attached_ = false;
  maps_.reset();
  for (const int signal : deferred_signals_) ::kill(pid(), signal);
  return ok();
}

}  // namespace uprobe::target
