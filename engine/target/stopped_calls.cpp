// SPDX-License-Identifier: MIT
// The calls that a thread of a stopped process makes for the tool. Facts of the kernel that this file builds on:
//   - what restart_syscall goes on with is kept through other system calls of the thread;
//   - single-step and int3 as the end of a call would reset an ignored SIGTRAP: system-call stops only;
//   - PTRACE_INTERRUPT ends a wait as a signal does (kernel/ptrace.c, signal_wake_up). The call's end is a system-call stop as ever,
//     whose result says that the call was cut short. A thread that has not come to its call, for a cgroup is frozen (version 2),
//     stops as it would anywhere; one that waits for a device, or in the freezer of version 1, does not stop at all.
#include <elf.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "arch/code/remote_call.h"
#include "arch/code/return_frame.h"
#include "engine/shared/agent_header.h"
#include "engine/target/interrupted_syscall.h"
#include "engine/target/remote_call_place.h"
#include "engine/target/seccomp.h"
#include "engine/target/stopped_process.h"
#include "engine/target/thread_change.h"

namespace uprobe::target {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kAwake = 200us, kFirstPause = 50us, kLongestPause = 1000us;
constexpr auto kTakePace = 5ms;
constexpr auto kShortPatience = 100ms;
constexpr auto kOrderPatience = 5s;
constexpr std::uint64_t kAllSignals = ~std::uint64_t{0};

// What the kernel would do.
arch::Restart restart_of(const arch::ThreadRegisters& r) {
  if (arch::call_number(r) < 0) return arch::Restart::none;
  switch (arch::result(r)) {
    case kRestart:
    case kRestartNoIntr:
    case kRestartNoHandler:
      return arch::Restart::again;
    case kRestartBlock:
      return arch::Restart::rest;
    default:
      return arch::Restart::none;
  }
}

// In a restartable sequence the kernel would send the thread to the abort handler at its next preemption (kernel/rseq.c). On an
// remote call it would forget the sequence instead: so it is aborted now.
void leave_sequence(const ProcessFiles& files, pid_t tid, arch::ThreadRegisters& registers) {
  constexpr std::uint64_t kDescriptorAt = 8;  // struct rseq::rseq_cs
  struct Configuration {
    std::uint64_t area;
    std::uint32_t bytes, signature, flags, pad;
  } configuration{};
  struct Section {
    std::uint32_t version, flags;
    std::uint64_t begin, bytes, abort;
  } section{};
  std::uint64_t descriptor = 0;
  constexpr auto kGetRseqConfiguration = static_cast<__ptrace_request>(0x420f);
  if (::ptrace(kGetRseqConfiguration, tid, as_data(sizeof configuration), &configuration) <= 0) return;
  if (configuration.area == 0) return;
  const Addr at{configuration.area + kDescriptorAt};
  if (!files.read(at, &descriptor, sizeof descriptor) || descriptor == 0) return;
  if (!files.read(Addr{descriptor}, &section, sizeof section)) return;
  if (arch::instruction_pointer(registers) - section.begin >= section.bytes) return;
  const std::uint64_t none = 0;
  if (files.write(at, &none, sizeof none)) arch::set_instruction_pointer(registers, section.abort);
}

// Cut short by the tool, or by SIGSTOP, which no mask holds back. (EINTR is a result: what it ended may not be begun again.)
bool begins_again(std::int64_t result) {
  return result == kRestart || result == kRestartNoIntr || result == kRestartNoHandler || result == kRestartBlock;
}

}  // namespace

// Over the vDSO's section headers, which no program needs. Every process has the same vDSO: what stood there before is known even
// where code of an earlier tool is left.
Result<RemoteCallPlace> find_remote_call_place(const ProcessFiles& files) {
  const auto maps = files.maps();
  if (!maps) return maps.error();
  const auto vdso = std::find_if(maps->begin(), maps->end(), [](const Mapping& m) { return m.path == "[vdso]"; });
  if (vdso == maps->end())
    return Error{.code = Code::refused, .text = "the program has no vDSO to make system calls in (vdso=0?)"};
  constexpr std::uint64_t kSectionOffset = offsetof(Elf64_Ehdr, e_shoff), kAlignment = 16;
  std::uint64_t offset = 0;
  RETURN_IF_ERROR(files.read(vdso->begin + kSectionOffset, &offset, sizeof offset));
  offset = (offset + kAlignment - 1) / kAlignment * kAlignment;
  if (offset == 0 || offset > vdso->end - vdso->begin || vdso->end - vdso->begin - offset < arch::kRemoteCallBytes)
    return Error{.code = Code::refused, .text = "the program's vDSO has no room to make system calls in"};
  std::vector<std::uint8_t> theirs(offset + arch::kRemoteCallBytes);
  RETURN_IF_ERROR(files.read(vdso->begin, theirs.data(), theirs.size()));
  RemoteCallPlace place{vdso->begin + offset, {theirs.end() - arch::kRemoteCallBytes, theirs.end()}, false};
  const auto* ours = reinterpret_cast<const std::uint8_t*>(::getauxval(AT_SYSINFO_EHDR));
  if (ours == nullptr || !std::equal(theirs.begin(), theirs.end() - arch::kRemoteCallBytes, ours)) return place;
  place.is_left = !std::equal(place.before.begin(), place.before.end(), ours + offset);
  std::copy_n(ours + offset, arch::kRemoteCallBytes, place.before.begin());
  return place;
}

Status StoppedProcess::put(const arch::ThreadRegisters& registers) {
  return ::ptrace(PTRACE_SETREGS, away_, nullptr, &registers) == 0 ? ok() : Status(ptrace_error("PTRACE_SETREGS"));
}

bool StoppedProcess::is_filtered(pid_t tid) const {
  const auto [known, is_new] = filtered_.try_emplace(tid, true);
  if (is_new) known->second = target::is_filtered(pid(), tid);
  return known->second;
}

// A filter could kill the thread for a call that the program never makes. It is suspended only while the thread does what the tool
// says: no instruction of the program's own runs without its filters.
Status StoppedProcess::open_filters() {
  if (!is_filtered(away_) || !can_suspend_filters()) return ok();
  RETURN_IF_ERROR(suspend_filters(away_, true));
  is_suspended_ = true;
  return ok();
}

Status StoppedProcess::close_filters() {
  return std::exchange(is_suspended_, false) ? suspend_filters(away_, false) : ok();
}

// On its return path, and out of every system call.
arch::ThreadRegisters StoppedProcess::resume_frame() const {
  const auto own = std::find_if(threads_.begin(), threads_.end(), [this](const Thread& t) { return t.tid == away_; });
  arch::ThreadRegisters r = own->registers;
  arch::set_instruction_pointer(r, (place_ + arch::kRemoteCallHome).value);
  arch::forget_call(r);
  arch::clear_modes(r);
  return r;
}

Status StoppedProcess::send(pid_t tid) {
  if (away_ == tid) return ok();
  RETURN_IF_ERROR(bring_home());
  is_changed_ = true;
  Thread* t = thread(tid);
  if (t == nullptr) return process_ended();
  if (!may_call_) return Error{.code = Code::refused, .text = "a seccomp filter may kill it for a system call"};
  leave_sequence(files_, tid, t->registers);
  const arch::RemoteCallCode code =
      arch::make_remote_call(arch::return_to(t->registers, t->mask, restart_of(t->registers)));
  RETURN_IF_ERROR(files_.write(place_, code.data(), code.size()));
  away_ = tid;
  is_at_rest_ = true;
  RETURN_IF_ERROR(open_filters());
  // The return path restores the mask as well: the registers first.
  Status sent = put(resume_frame());
  std::uint64_t all = kAllSignals;
  if (sent && ::ptrace(PTRACE_SETSIGMASK, tid, as_data(sizeof all), &all) != 0)
    sent = ptrace_error("PTRACE_SETSIGMASK");
  return sent;
}

// Of threads that stand, should the process have been killed. Each is asked, so not at every turn of a wait.
void StoppedProcess::take_ends(const std::vector<pid_t>& but) {
  if (Clock::now() < next_take_) return;
  next_take_ = Clock::now() + kTakePace;
  for (const pid_t tid : seized_)
    if (std::find(but.begin(), but.end(), tid) == but.end()) take_end(tid);
}

// How the one that is away has stopped or ended; 0 where it has ended, nothing where neither has come by the deadline. It comes at once
// as a rule: to sleep and be woken takes several times as long.
std::optional<int> StoppedProcess::await_change(Clock::time_point deadline) {
  auto pause = kFirstPause;
  for (const auto end = Clock::now() + kAwake;;) {
    int status = 0;
    if (take_change(away_, status, WNOHANG) != 0) return status;
    if (Clock::now() < end) {
      ::sched_yield();
      continue;
    }
    if (Clock::now() > deadline) return std::nullopt;
    take_ends({away_});
    ::usleep(static_cast<useconds_t>(pause.count()));
    pause = std::min(2 * pause, kLongestPause);
  }
}

// It has been interrupted, and runs.
Status StoppedProcess::await_rest() {
  for (const auto deadline = Clock::now() + kPatience;;) {
    const auto status = await_change(deadline);
    if (!status) return blocked();
    if (!WIFSTOPPED(*status)) return process_ended();
    if (*status >> 16 == PTRACE_EVENT_STOP) break;
    ::ptrace(PTRACE_CONT, away_, nullptr, as_data(WSTOPSIG(*status) & 0x7f));
  }
  is_at_rest_ = true;
  return ok();
}

// Not an instruction is executed.
Status StoppedProcess::bring_home() {
  if (away_ == 0) return ok();
  const Thread own = *thread(away_);
  if (!is_at_rest_) {
    RETURN_IF_ERROR(put(resume_frame()));
    if (::ptrace(PTRACE_INTERRUPT, away_, nullptr, nullptr) != 0 || ::ptrace(PTRACE_CONT, away_, nullptr, nullptr) != 0)
      return ptrace_error("ptrace");
    RETURN_IF_ERROR(await_rest());
  }
  std::uint64_t mask = own.mask;
  if (::ptrace(PTRACE_SETSIGMASK, away_, as_data(sizeof mask), &mask) != 0) return ptrace_error("PTRACE_SETSIGMASK");
  RETURN_IF_ERROR(put(own.registers));
  RETURN_IF_ERROR(close_filters());
  away_ = 0;
  return ok();
}

// From now on a call that waits delays the process no longer than it must: it has waited long enough once.
Error StoppedProcess::blocked() {
  call_patience_ = kShortPatience;
  return Error{.code = Code::refused,
               .text = "a system call in it does not return",
               .help = "it may be frozen (a paused container), or a file system or device may not answer"};
}

// The next system-call stop of the one that is away. Where it does not come its call is interrupted: the kernel ends a wait, and
// restarts nothing, as the thread is taken out of the call then. A call that has come to its end all the same has done its work.
Result<int> StoppedProcess::next_stop() {
  int signal = 0;
  bool is_interrupted = false;
  for (;;) {
    if (::ptrace(PTRACE_SYSCALL, away_, nullptr, as_data(signal)) != 0) return ptrace_error("ptrace");
    auto status = await_change(Clock::now() + call_patience_);
    if (!status && !is_interrupted) {
      is_interrupted = true;
      if (::ptrace(PTRACE_INTERRUPT, away_, nullptr, nullptr) != 0) return ptrace_error("PTRACE_INTERRUPT");
      status = await_change(Clock::now() + call_patience_);
    }
    if (!status) return blocked();
    if (!WIFSTOPPED(*status)) return process_ended();
    if (WSTOPSIG(*status) == kSyscallStop) return *status;
    is_at_rest_ = is_interrupted && *status >> 16 == PTRACE_EVENT_STOP;
    if (is_at_rest_) return blocked();
    signal = *status >> 16 == 0 ? WSTOPSIG(*status) : 0;  // SIGSTOP: no mask holds it back
  }
}

Result<std::int64_t> StoppedProcess::system_call(long number, const std::array<std::uint64_t, 6>& a) {
  if (away_ == 0) RETURN_IF_ERROR(send(threads_.front().tid));
  arch::ThreadRegisters r = resume_frame();
  arch::set_instruction_pointer(r, place_.value);
  arch::set_call(r, number, a);
  for (const auto deadline = Clock::now() + call_patience_;;) {
    is_at_rest_ = false;
    RETURN_IF_ERROR(put(r));
    RETURN_IF_ERROR(next_stop());
    RETURN_IF_ERROR(next_stop());
    arch::ThreadRegisters after{};
    if (::ptrace(PTRACE_GETREGS, away_, nullptr, &after) != 0) return ptrace_error("PTRACE_GETREGS");
    if (!begins_again(arch::result(after))) return arch::result(after);
    if (Clock::now() > deadline) return blocked();
  }
}

Status StoppedProcess::await_done(Addr state) {
  const auto deadline = Clock::now() + kOrderPatience;
  while (Clock::now() < deadline) {
    std::uint32_t seen = 0;
    RETURN_IF_ERROR(files_.read(state, &seen, sizeof seen));
    if (seen != shared::kOrderGiven) return ok();
    int status = 0;
    const pid_t changed = take_change(away_, status, WNOHANG);
    if (changed == away_ && !WIFSTOPPED(status)) return process_ended();
    // SIGSTOP: no mask holds it back.
    if (changed == away_) ::ptrace(PTRACE_CONT, away_, nullptr, as_data(status >> 16 == 0 ? WSTOPSIG(status) : 0));
    ::sched_yield();
  }
  return Error{.code = Code::refused, .text = "a thread does not do what attaching needs"};
}

// The tool was stopped for longer than the thread waits.
Status StoppedProcess::left_early() {
  RETURN_IF_ERROR(close_filters());
  RETURN_IF_ERROR(take_state(std::exchange(away_, 0), false));
  RETURN_IF_ERROR(await_others_remote_calls());
  return Error{.code = Code::refused,
               .text = "a thread has gone on by itself: this uprobe-run was stopped for too long"};
}

// No stop for each of its system calls: the thread says itself that it is done, and waits.
Status StoppedProcess::run(Addr function, Addr order) {
  if (away_ == 0) RETURN_IF_ERROR(send(threads_.front().tid));
  arch::ThreadRegisters r = resume_frame();
  const auto entered = arch::enter_function(r, function.value, order.value, order.value, arch::instruction_pointer(r));
  RETURN_IF_ERROR(files_.write(Addr{entered.at}, &entered.word, sizeof entered.word));
  RETURN_IF_ERROR(put(r));
  is_at_rest_ = false;
  if (::ptrace(PTRACE_CONT, away_, nullptr, nullptr) != 0) return ptrace_error("PTRACE_CONT");
  const Addr state = order + offsetof(shared::AttachOrder, state);
  RETURN_IF_ERROR(await_done(state));
  if (::ptrace(PTRACE_INTERRUPT, away_, nullptr, nullptr) != 0) return ptrace_error("PTRACE_INTERRUPT");
  RETURN_IF_ERROR(await_rest());
  std::uint32_t seen = 0;
  RETURN_IF_ERROR(files_.read(state, &seen, sizeof seen));
  if (seen != shared::kOrderDone) return left_early();
  return put(resume_frame());
}

}  // namespace uprobe::target
