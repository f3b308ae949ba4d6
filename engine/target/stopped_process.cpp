// SPDX-License-Identifier: MIT
// Facts of the kernel that this file builds on:
//   - PTRACE_SEIZE and PTRACE_INTERRUPT stop a thread in get_signal(), before anything is decided about the system call that
//     the stop has interrupted: the registers say which (the number of the call) and how it would be restarted (its result). Put back as they were,
//     the kernel restarts it;
//   - some calls answer EINTR to any wake-up instead (fs/eventpoll.c, kernel/signal.c sigtimedwait, ipc/sem.c, sockets with a
//     timeout: net/core/sock.c sock_intr_errno). They have done nothing yet: -ERESTARTNOHAND makes them start again, and a handler
//     that is about to run still makes it EINTR;
//   - SIGKILL ends traced threads that stand, too, and a process's first thread shows its end only when the tracer has taken
//     notice of the end of all others (kernel/exit.c, delay_group_leader);
//   - a process stopped by SIGSTOP stops again by itself when its tracer detaches (kernel/ptrace.c, __ptrace_unlink);
#include "engine/target/stopped_process.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "arch/code/remote_call.h"
#include "engine/base/procfs.h"
#include "engine/target/interrupted_syscall.h"
#include "engine/target/process_stat.h"
#include "engine/target/remote_call_place.h"
#include "engine/target/seccomp.h"
#include "engine/target/thread_change.h"

namespace uprobe::target {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kAtOnce = 200us, kPace = 50us, kMoment = 200us;
constexpr std::chrono::microseconds kHandlersMoment = 100ms;
constexpr int kMostMoments = 1000;
constexpr auto kLastPatience = 200ms;

bool is_zombie(pid_t pid, pid_t tid) {
  const auto status = procfs::read(pid, tid, "status");
  const std::string_view state = status ? procfs::field(*status, "State").value_or("") : "X";
  return state.starts_with('Z') || state.starts_with('X');
}

}  // namespace

Result<std::unique_ptr<StoppedProcess>> StoppedProcess::hold(pid_t pid, std::chrono::milliseconds patience) {
  auto files = ProcessFiles::open(pid);
  if (!files) return files.error();
  // A handler that a thread was entered for on its return path from a killed tool's remote call returns to there.
  const auto seen = find_remote_call_place(*files);
  if (seen && seen->is_left) ::usleep(kHandlersMoment.count());
  std::unique_ptr<StoppedProcess> process(new StoppedProcess(files.take(), patience));
  process->look_at_sleepers();
  RETURN_IF_ERROR(process->hold_all());
  RETURN_IF_ERROR(process->check_dispatch());
  const auto stat = stat_of(pid);
  if (process->threads_.empty()) return stat && !has_ended(*stat) ? in_execve() : process_ended();
  // It may have called execve before it was stopped. The thread that did may have the first one's id now, and have no tracer.
  if (!is_zombie(pid, pid) && procfs::tracer_of(pid).value_or(0) == 0) return in_execve();
  auto now = ProcessFiles::open(pid);
  if (!now) return now.error();
  process->files_ = now.take();
  auto place = find_remote_call_place(process->files_);
  if (!place) return place.error();
  process->place_ = place->at, process->before_ = std::move(place->before);
  RETURN_IF_ERROR(process->await_others_remote_calls());
  return process;
}

// As short as can be: what takes time comes before the stop. The memory of a process that has called execve since cannot be read any
// more.
Result<std::unique_ptr<StoppedProcess>> StoppedProcess::hold_thread(pid_t pid, pid_t tid,
                                                                    std::chrono::milliseconds patience) {
  auto files = ProcessFiles::open(pid);
  if (!files) return files.error();
  std::unique_ptr<StoppedProcess> process(new StoppedProcess(files.take(), patience));
  auto place = find_remote_call_place(process->files_);
  if (!place) return place.error();
  if (place->is_left) return Error{.code = Code::refused, .text = "a killed tool has left its code in the process"};
  process->only_ = tid;
  Status held = process->hold_all();
  std::uint8_t there = 0;
  if (held && process->read(place->at, &there, sizeof there))
    process->place_ = place->at, process->before_ = std::move(place->before);
  else
    held = held ? in_execve() : held;
  if (!held) return held.error();
  if (process->threads_.empty()) return process_ended();
  return process;
}

StoppedProcess::~StoppedProcess() { let_go(); }

std::vector<pid_t> StoppedProcess::wanted_threads() const {
  return only_ != 0 ? std::vector<pid_t>{only_} : threads_of(pid());
}

// Syscall User Dispatch sends SIGSYS for calls that are made elsewhere than in the program's own range (Documentation/admin-guide/
// syscall-user-dispatch.rst): the calls that attaching needs would end the process. Kernels before 6.4 do not tell.
Status StoppedProcess::check_dispatch() const {
  constexpr auto kGetConfig = static_cast<__ptrace_request>(0x4211);  // PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG
  struct {
    std::uint64_t mode, selector, offset, length;
  } config{};
  for (const Thread& t : threads_)
    if (::ptrace(kGetConfig, t.tid, as_data(sizeof config), &config) == 0 && config.mode != 0)
      return Error{.code = Code::refused,
                   .text = "uses Syscall User Dispatch, which would end it for the system calls that attaching needs"};
  return ok();
}

Status StoppedProcess::hold_all() {
  std::vector<pid_t> stopping;
  for (;;) {
    auto found = seize_new(stopping);
    if (!found) return found.error();
    if (!*found) undertaker_.reset();
    if (!*found) return ok();
    RETURN_IF_ERROR(await_stops(stopping, Clock::now() + patience_));
    if (!stopping.empty())
      return Error{.code = Code::refused,
                   .text = "thread " + std::to_string(stopping.front()) + " does not stop: it waits in the kernel"};
  }
}

// Before anybody is stopped: to be woken is the end of a sleep.
void StoppedProcess::look_at_sleepers() {
  for (const pid_t tid : threads_of(pid())) {
    if (is_kernels(pid(), tid)) continue;
    judged_.insert(tid);
    const long call = call_under_way(pid(), tid);
    if (!loses_time(call) && !(is_kept_by_kernel(call) && is_filtered(tid))) continue;
    if (const auto sleep = sleep_of(pid(), tid)) sleepers_.emplace(tid, *sleep);
  }
}

// One that has left its processor once more, to be stopped, has slept until then.
std::optional<Sleep> StoppedProcess::sleep_until_now(pid_t tid) {
  const auto before = sleepers_.extract(tid);
  const auto now = before.empty() ? std::nullopt : sleep_of(pid(), tid);
  if (!now || now->switches != before.mapped().switches + 1) return std::nullopt;
  return before.mapped();
}

// While one of them is in execve it is not to be had before all others have ended, and those that we have had taken by us.
int StoppedProcess::seize(pid_t tid) {
  if (!seized_.empty() && !undertaker_) undertaker_.emplace(seized_);
  if (undertaker_) undertaker_->begin();
  const int error = target::seize(tid, PTRACE_O_TRACESYSGOOD, patience_);
  if (undertaker_) undertaker_->end();
  return error;
}

// Threads that begin while others are being stopped come with the next look.
Result<bool> StoppedProcess::seize_new(std::vector<pid_t>& stopping) {
  bool found = false;
  for (const pid_t tid : wanted_threads()) {
    if (std::find(seized_.begin(), seized_.end(), tid) != seized_.end()) continue;
    if (!judged_.contains(tid) && is_kernels(pid(), tid)) continue;
    if (const int error = seize(tid); error != 0) {
      if (error == ESRCH || is_zombie(pid(), tid)) continue;
      if (error == ETIMEDOUT)
        return Error{.code = Code::refused, .text = "is in an execve that does not end", .retry = Retry::soon};
      return system_error("ptrace", error);
    }
    seized_.push_back(tid);
    stopping.push_back(tid);
    ::ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
    found = true;
    // At once where it sleeps: if we were killed before, some waits would see EINTR.
    RETURN_IF_ERROR(await_stops(stopping, Clock::now() + kAtOnce));
  }
  return found;
}

// Those that have not stopped by then are left in the list.
Status StoppedProcess::await_stops(std::vector<pid_t>& stopping, Clock::time_point deadline) {
  while (!stopping.empty()) {
    for (std::size_t i = 0; i < stopping.size();) {
      const pid_t tid = stopping[i];
      int status = 0;
      const pid_t seen = take_change(tid, status, WNOHANG);
      if (seen == 0) {
        ++i;
        continue;
      }
      if (seen < 0 && errno == ECHILD) return in_execve();
      const bool stopped = seen == tid && WIFSTOPPED(status);
      if (stopped && status >> 16 != PTRACE_EVENT_STOP) {
        // About to get a signal: it gets it first.
        ::ptrace(PTRACE_CONT, tid, nullptr, as_data(WSTOPSIG(status) == kSyscallStop ? 0 : WSTOPSIG(status)));
        continue;
      }
      stopping.erase(stopping.begin() + static_cast<std::ptrdiff_t>(i));
      if (!stopped) std::erase(seized_, tid);
      if (stopped) RETURN_IF_ERROR(take_state(tid, WSTOPSIG(status) != SIGTRAP));
    }
    if (stopping.empty() || Clock::now() > deadline) break;
    take_ends(stopping);
    if (deadline - Clock::now() > kAtOnce)
      ::usleep(kPace.count());
    else
      ::sched_yield();
  }
  return ok();
}

Status StoppedProcess::take_state(pid_t tid, bool in_group_stop) {
  Thread t{.tid = tid, .registers = {}, .mask = 0, .in_group_stop = in_group_stop, .sleep = {}};
  if (::ptrace(PTRACE_GETREGS, tid, nullptr, &t.registers) != 0 ||
      ::ptrace(PTRACE_GETSIGMASK, tid, as_data(sizeof t.mask), &t.mask) != 0)
    return errno == ESRCH ? ok() : Status(system_error("ptrace", errno));
  if (!arch::runs_native_code(t.registers)) return Error{.code = Code::refused, .text = "runs 32-bit code"};
  t.sleep = sleep_until_now(tid);
  if (has_kept_time(arch::call_number(t.registers), arch::result(t.registers))) t.sleep.reset();
  const bool is_cut_short = arch::result(t.registers) == -EINTR && may_begin_again(arch::call_number(t.registers));
  if (is_cut_short || (arch::result(t.registers) == kRestartBlock && is_filtered(tid))) {
    arch::set_result(t.registers, kRestartNoHandler);
    if (::ptrace(PTRACE_SETREGS, tid, nullptr, &t.registers) != 0) return ptrace_error("PTRACE_SETREGS");
  }
  if (Thread* known = thread(tid))
    *known = t;
  else
    threads_.push_back(t);
  return ok();
}

StoppedProcess::Thread* StoppedProcess::thread(pid_t tid) {
  const auto found = std::find_if(threads_.begin(), threads_.end(), [tid](const Thread& t) { return t.tid == tid; });
  return found == threads_.end() ? nullptr : &*found;
}

std::vector<ThreadPlace> StoppedProcess::places() const {
  std::vector<ThreadPlace> all;
  for (const Thread& thread : threads_)
    all.push_back({arch::instruction_pointer(thread.registers), arch::stack_pointer(thread.registers)});
  return all;
}

bool StoppedProcess::is_remote_call(std::uint64_t ip) const { return ip - place_.value < arch::kRemoteCallBytes; }

// Sent by a tool that was killed, on its return path: that must not be overwritten, nor taken away.
Status StoppedProcess::await_others_remote_calls() {
  for (int moments = 0; moments < kMostMoments; ++moments) {
    const auto away =
        std::find_if(threads_.begin(), threads_.end(), [this](const Thread& t) { return is_in_remote_call(t); });
    if (away == threads_.end()) return ok();
    if (away->in_group_stop) break;
    RETURN_IF_ERROR(let_run(away->tid, kMoment));
  }
  return Error{.code = Code::refused, .text = "a thread does not come back from what a killed tool made it do"};
}

Status StoppedProcess::set_mask(pid_t tid, std::uint64_t mask) {
  Thread* t = thread(tid);
  if (t == nullptr || t->mask == mask) return ok();
  t->mask = mask;
  return ::ptrace(PTRACE_SETSIGMASK, tid, as_data(sizeof mask), &mask) == 0 ? ok()
                                                                            : Status(ptrace_error("PTRACE_SETSIGMASK"));
}

Status StoppedProcess::set_registers(pid_t tid, const arch::ThreadRegisters& registers) {
  Thread* t = thread(tid);
  if (t == nullptr) return ok();
  t->registers = registers;
  return ::ptrace(PTRACE_SETREGS, tid, nullptr, &registers) == 0 ? ok() : Status(ptrace_error("PTRACE_SETREGS"));
}

Status StoppedProcess::let_run(pid_t tid, std::chrono::microseconds moment) {
  filtered_.clear();
  if (::ptrace(PTRACE_CONT, tid, nullptr, nullptr) != 0) return ptrace_error("PTRACE_CONT");
  ::usleep(static_cast<useconds_t>(moment.count()));
  ::ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
  std::vector<pid_t> stopping{tid};
  RETURN_IF_ERROR(await_stops(stopping, Clock::now() + patience_));
  if (!stopping.empty()) return Error{.code = Code::refused, .text = "a thread does not stop again"};
  if (std::find(seized_.begin(), seized_.end(), tid) == seized_.end())
    std::erase_if(threads_, [tid](const Thread& t) { return t.tid == tid; });
  return hold_all();
}

namespace {

// At the entry of a system call: the thread stands in front of it again, even if we were killed now (with no call the kernel
// leaves the result alone; do_syscall_64).
Status take_call_back(pid_t tid, arch::ThreadRegisters registers) {
  arch::take_call_back(registers);
  return ::ptrace(PTRACE_SETREGS, tid, nullptr, &registers) == 0 ? ok() : Status(ptrace_error("PTRACE_SETREGS"));
}

}  // namespace

// Nothing: it runs.
std::optional<int> StoppedProcess::change_by(pid_t tid, Clock::time_point deadline) {
  for (;;) {
    int status = 0;
    if (take_change(tid, status, WNOHANG) != 0) return status;
    if (Clock::now() > deadline) return std::nullopt;
    take_ends({tid});
    ::sched_yield();
  }
}

// Interrupted when the deadline has passed.
Result<int> StoppedProcess::stop_again(pid_t tid, Clock::time_point deadline) {
  if (const auto stop = change_by(tid, deadline)) return *stop;
  ::ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
  if (const auto stop = change_by(tid, Clock::now() + patience_)) return *stop;
  return Error{.code = Code::refused, .text = "a thread does not stop again"};
}

Status StoppedProcess::let_out(pid_t tid, std::chrono::microseconds moment,
                               const std::function<bool(std::uint64_t ip)>& is_ours) {
  filtered_.clear();
  const auto deadline = Clock::now() + moment;
  int signal = 0;
  bool in_call = false, is_suspended = false;
  for (auto request = PTRACE_SYSCALL;;) {
    if (::ptrace(request, tid, nullptr, as_data(signal)) != 0) return ptrace_error("ptrace");
    const auto stop = stop_again(tid, deadline);
    if (!stop) return stop.error();
    if (!WIFSTOPPED(*stop)) {
      std::erase(seized_, tid);
      std::erase_if(threads_, [tid](const Thread& t) { return t.tid == tid; });
      return hold_all();
    }
    if (*stop >> 16 == PTRACE_EVENT_STOP) {
      if (is_suspended) RETURN_IF_ERROR(suspend_filters(tid, false));
      RETURN_IF_ERROR(take_state(tid, WSTOPSIG(*stop) != SIGTRAP));
      return hold_all();
    }
    signal = WSTOPSIG(*stop) == kSyscallStop ? 0 : WSTOPSIG(*stop);
    if (signal != 0) continue;
    in_call = !in_call;
    arch::ThreadRegisters registers{};
    if (::ptrace(PTRACE_GETREGS, tid, nullptr, &registers) != 0) return ptrace_error("PTRACE_GETREGS");
    if (!in_call || is_ours(arch::call_place(registers))) continue;
    // Seccomp filters would still be asked about the call, whose number is -1 then: where they cannot be suspended the thread makes it.
    const bool has_filter = is_filtered(tid);
    is_suspended = has_filter && can_suspend_filters() && suspend_filters(tid, true);
    if (!has_filter || is_suspended) RETURN_IF_ERROR(take_call_back(tid, registers));
    if (::ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr) != 0) return ptrace_error("PTRACE_INTERRUPT");
    request = PTRACE_CONT;
  }
}

// The code stays in the process, for the next time as well.
Result<Addr> StoppedProcess::place_resume_code() {
  constexpr std::uint64_t kPage = 4096;
  const auto maps = files_.maps();
  if (!maps) return maps.error();
  for (const Mapping& m : *maps) {
    if (!m.executable || m.writable || !m.path.empty() || m.end - m.begin != kPage) continue;
    std::array<std::uint8_t, arch::kResumeCode.size()> seen{};
    if (files_.read(m.begin, seen.data(), seen.size()) && seen == arch::kResumeCode) return m.begin;
  }
  auto place =
      map_memory(*this, Addr{}, kPage, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, "the rest of a call");
  if (!place) return place;
  RETURN_IF_ERROR(files_.write(*place, arch::kResumeCode.data(), arch::kResumeCode.size()));
  return place;
}

// Who is stopped by SIGSTOP knows of it.
void StoppedProcess::resume_interrupted_syscalls() {
  const auto is_cut = [](const Thread& t) { return !t.in_group_stop && may_be_cut(t.registers); };
  if (!place_ || !may_call_ || std::none_of(threads_.begin(), threads_.end(), is_cut)) return;
  const auto rest_of = [&](const Thread& t, Addr code) {
    return rest_of_call(files_, t.registers, code, t.sleep ? time_since(*t.sleep) : std::nullopt);
  };
  const auto needs_code = [&](const Thread& t) { return is_cut(t) && rest_of(t, Addr{}).has_value(); };
  if (std::none_of(threads_.begin(), threads_.end(), needs_code)) return;
  const auto code = place_resume_code();
  if (!code || !bring_home()) return;
  for (const Thread& t : threads_) {
    const auto rest = is_cut(t) ? rest_of(t, *code) : std::nullopt;
    if (rest && files_.write(Addr{arch::stack_pointer(rest->registers)}, &rest->call, sizeof rest->call))
      static_cast<void>(set_registers(t.tid, rest->registers));
  }
}

// It has not stopped yet; or it was seized in the middle of execve, and has the first one's id now.
void StoppedProcess::let_go_running(pid_t tid, Clock::time_point deadline) {
  if (::ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr) != 0) return;
  const auto stop = change_by(tid, deadline);
  if (!stop || !WIFSTOPPED(*stop)) return;
  ::ptrace(PTRACE_DETACH, tid, nullptr, as_data(*stop >> 16 == 0 ? WSTOPSIG(*stop) : 0));
}

void StoppedProcess::let_go() {
  resume_interrupted_syscalls();
  const Status home = bring_home();  // one that is not there needs its way yet
  if (is_changed_ && home) static_cast<void>(files_.write(place_, before_.data(), before_.size()));
  is_changed_ = false;
  const auto deadline = Clock::now() + kLastPatience;
  for (const pid_t tid : seized_)
    if (::ptrace(PTRACE_DETACH, tid, nullptr, nullptr) != 0) let_go_running(tid, deadline);
  seized_.clear();
  threads_.clear();
}

}  // namespace uprobe::target
