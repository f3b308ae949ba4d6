// SPDX-License-Identifier: MIT
// Debuggers in the traced tree. A tracer sees the SIGTRAP of the agent's breakpoints first, takes it for one of its own, and
// the thread goes on after the first byte of an instruction. So a process that is about to be traced gets its text back first,
// for good: the tool removes the breakpoints, and programs that the process starts later run unprobed as well. Where the tool cannot
// do that, the tracer is told that it may not trace the process.
//
// The text of a child in its parent's memory (vfork) is the parent's too. Such a child calls only execve, so the agent puts its
// request to be traced off until then, and no breakpoint lies between the two. A parent that does not stop in that time
// (clone without CLONE_VFORK) may wait for its child first: there both lose their probes.
#include "preload/tracers.h"

#include "preload/calls.h"
#include "preload/deferred_signals.h"
#include "preload/thread.h"
#include "preload/virtual_mask.h"

namespace uprobe::agent {
namespace {

constexpr u64 kTraceme = 0, kAttach = 16, kSeize = 0x4206;  // uapi/linux/ptrace.h
constexpr long kNotPermitted = -1;                          // EPERM, as for a process that is traced already

bool has_left(const ProcessBlock& block) { return __atomic_load_n(&block.left, __ATOMIC_ACQUIRE) == shared::kLeft; }

// A session that has ended removes its breakpoints from one process after the other: this one's turn comes without a request.
void await_end_of_session(const ProcessBlock& block) {
  const AreaHeader* area = session_area(block, 0);
  const u64 pause[2] = {0, 1'000'000};  // struct timespec
  for (u32 tries = 0; tries < 1000 && area != nullptr && __atomic_load_n(&block.left, __ATOMIC_ACQUIRE) == 0; ++tries) {
    if (__atomic_load_n(&area->state, __ATOMIC_RELAXED) == static_cast<u32>(shared::SessionState::recording)) return;
    system_call(kSysNanosleep, as_word(pause));
  }
}

// False: the tool has refused.
bool ask_to_leave(ProcessBlock& block, shared::MailKind kind, u64 argument) {
  u64 answer = 0;
  ask_tool(block, session_area(block, 0), {kind, thread_id(block, true), argument, 0}, &answer);
  return answer != shared::kMayNotTrace;
}

// False: the breakpoints stand, since the tool did not answer. The agent's handlers stay if the parent uses them too, or if a
// handler of the application may still return by a fault.
bool leave(ProcessBlock& block) {
  const bool needed = borrows_memory(block) || (block.flags & shared::kBlockLedBack) != 0;
  if (!has_left(block)) ask_to_leave(block, shared::MailKind::leave_me, needed ? 0 : 1);
  const bool may_wait = (__atomic_load_n(&block.flags, __ATOMIC_RELAXED) & shared::kBlockFilteredLater) == 0;
  if (!has_left(block) && may_wait) await_end_of_session(block);
  return has_left(block);
}

// From here on the kernel blocks the signals of the virtual mask, and the deferred ones wait in the kernel.
void hand_signals_over(ProcessBlock& block, u64 blocked) {
  if (blocked == 0) return;
  SignalInfo info;
  system_call(kSysRtSigprocmask, kSigBlock, as_word(&blocked), 0, 8);
  const u64 pid = static_cast<u64>(system_call(kSysGetpid)), tid = static_cast<u64>(system_call(kSysGettid));
  while (take_deferred(block, blocked, info))
    system_call(kSysRtTgsigqueueinfo, pid, tid, static_cast<u64>(info.signal), as_word(&info));
}

// A process that still has breakpoints is told that it is traced already: its debugger reports that, and the program lives.
long be_traced(ProcessBlock& block, const SignalFrame& frame) {
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), false);
  if (entry != nullptr && entry->borrower != 0 && entry->shares == shared::kParentWaits) {
    if (entry->traced_at_exec != 0) return kNotPermitted;
    entry->traced_at_exec = 1;
    return 0;
  }
  const u64 blocked = virtually_blocked(block);
  if (!leave(block)) return kNotPermitted;
  hand_signals_over(block, blocked);
  return pass(frame);
}

}  // namespace

bool call_ptrace(ProcessBlock& block, const SignalFrame& frame, long& result) {
  const bool attaches = call_argument(frame, 0) == kAttach || call_argument(frame, 0) == kSeize;
  if (attaches && !ask_to_leave(block, shared::MailKind::leave_one, call_argument(frame, 1)))
    return result = kNotPermitted, true;
  if (call_argument(frame, 0) != kTraceme) return false;
  result = be_traced(block, frame);
  return true;
}

bool is_traced_at_exec(ProcessBlock& block) {
  const shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), false);
  return entry != nullptr && entry->traced_at_exec != 0;
}

// From the request on signals go to the tracer first, so the second call is never put off for one. If execve fails, the traced
// thread is in text with breakpoints: then the parent's text is restored as well.
long execute_traced(ProcessBlock& block, const SignalFrame& frame) {
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), false);
  const long asked = uprobe_interruptible_call(&entry->attention, kSysPtrace, kTraceme, 0, 0, 0, 0, 0);
  if (asked != 0) return asked;
  const long result = pass(frame);
  entry->traced_at_exec = 0;
  leave(block);
  return result;
}

}  // namespace uprobe::agent
