// SPDX-License-Identifier: MIT
// System calls at internal points (in libc and ld.so): the few that the agent has to make in the application's stead.
#include "preload/calls.h"

#include "arch/entry/number_load.h"
#include "arch/entry/signal_frame.h"
#include "preload/copies.h"
#include "preload/deferred_signals.h"
#include "preload/handler_entry.h"
#include "preload/mappings.h"
#include "preload/quick_calls.h"
#include "preload/stacks.h"
#include "preload/status.h"
#include "preload/system_call.h"
#include "preload/task_name.h"
#include "preload/thread.h"
#include "preload/tracers.h"
#include "preload/virtual_mask.h"

namespace uprobe::agent {
namespace {

constexpr u64 kPrSetName = 15, kPrSetSeccomp = 22;
constexpr u64 kCloneNewuser = 0x10000000;
constexpr u64 kAtCwd = static_cast<u64>(-100);  // AT_FDCWD
constexpr u64 kCloneVm = 0x100, kCloneVfork = 0x4000, kCloneSettls = 0x80000, kCloneClearSighand = u64{1} << 32;
constexpr long kInterrupted = -4;  // EINTR

// The call as the application made it; kNotMade when a signal has come since begin_call.
long pass(ProcessBlock& block, const SignalFrame& frame) {
  return interruptible_call(block, call_number(frame), call_argument(frame, 0), call_argument(frame, 1),
                            call_argument(frame, 2), call_argument(frame, 3), call_argument(frame, 4),
                            call_argument(frame, 5));
}

// The tool seizes this thread, so that it stops again at the end of execve and can put the agent into the new program. gettid
// and futex: a filter may forbid them and still allow execve; such a process is marked as filtered, and its new program runs
// unprobed, counted.
long execute(ProcessBlock& block, const SignalFrame& frame) {
  AreaHeader* area = session_area(block, 0);
  const bool preloaded = area != nullptr && (area->mode & shared::kModePreloaded) != 0;
  const bool traced = is_traced_at_exec(block);
  const bool follow = (block.flags & shared::kBlockFiltered) == 0 && !preloaded && !traced;
  if (preloaded) flush_output(block);
  const u32 tid = follow ? static_cast<u32>(system_call(kSysGettid)) : 0;
  const bool at = call_number(frame) == kSysExecveat;
  const Request request{shared::MailKind::exec_begins, tid, at ? call_argument(frame, 1) : call_argument(frame, 0),
                        at ? call_argument(frame, 0) : kAtCwd};
  if (follow) ask_tool(block, area, request);
  // Counted before the call, which does not come back if it succeeds.
  u64* untraced = nullptr;
  if (!follow && !preloaded && area != nullptr)
    untraced = traced ? &live_of(area).traced_execs : &live_of(area).filtered_execs;
  if (untraced != nullptr) __atomic_fetch_add(untraced, 1, __ATOMIC_RELAXED);
  show_mask_to_successor(block);
  const long result = traced ? execute_traced(block, frame) : pass(block, frame);
  take_mask_back(block);
  if (untraced != nullptr) __atomic_fetch_sub(untraced, 1, __ATOMIC_RELAXED);
  if (follow) ask_tool(block, area, {shared::MailKind::exec_failed, tid, 0, 0});
  return result;
}

// Where the tool does not answer, the process itself takes the live part of its old domain out of its memory. Private memory comes in the
// same place, so that threads in the middle of a record write to their own process. Safe: mmap of one range that is the session's, whole.
void leave_live_part(const AreaHeader& area) {
  constexpr u64 kReadWrite = 3, kFixedPrivateNoreserve = 0x4032;
  const u64 bytes = area.data_offset - area.live_offset + 2 * area.ring_bytes * area.ring_count;
  system_call(kSysMmap, as_word(&area) + area.live_offset, bytes, kReadWrite, kFixedPrivateNoreserve, ~u64{0}, 0);
}

// All processes that share a live part are of one trust domain, so the process has the live part of its new domain when the
// call returns. libc makes such a call in each thread of a process; each asks, and the last request covers the changes of all
// of them. A child in its parent's memory has no live part of its own.
long change_credentials(ProcessBlock& block, const SignalFrame& frame) {
  const long result = pass(block, frame);
  const bool asks = result == 0 && (block.flags & shared::kBlockFiltered) == 0 && !borrows_memory(block);
  if (asks) {
    const u32 tid = static_cast<u32>(system_call(kSysGettid));
    AreaHeader* area = session_area(block, 0);
    const bool is_answered = ask_tool(block, area, {shared::MailKind::credentials_changed, tid, 0, 0});
    if (!is_answered && area != nullptr) leave_live_part(*area);
  }
  return result;
}

// A wait with a mask of its own, at the address `mask`, where the call finds it. If the mask names none of kOurSignals the
// displaced copy makes the call; otherwise the agent makes it, with a mask without them. A deferred signal that the mask lets
// through ends the wait at once.
bool wait_with(ProcessBlock& block, SignalFrame& frame, u64& mask, long& result) {
  const Reader reader{true};
  u64 clean = 0, wanted = 0;
  if (mask != 0 && reader.load8(mask, wanted) && release_deferred(block, wanted, frame.mask)) {
    result = kInterrupted;
    return true;
  }
  const u64 changed = without_our_signals(mask, clean);
  if (changed == mask) return false;
  const u64 original = mask;
  mask = changed;
  result = pass(block, frame);
  mask = original;
  return true;
}

// pselect6: the sixth argument points to the mask's address and its size.
bool pselect(ProcessBlock& block, SignalFrame& frame, long& result) {
  u64 pair[2] = {};
  const Reader reader{true};
  if (call_argument(frame, 5) == 0 || !reader.load8(call_argument(frame, 5), pair[0]) ||
      !reader.load8(call_argument(frame, 5) + 8, pair[1]))
    return false;
  const u64 original = call_argument(frame, 5);
  call_argument(frame, 5) = as_word(pair);
  const bool made = wait_with(block, frame, pair[0], result);
  call_argument(frame, 5) = original;
  return made;
}

// Makes the call and updates the virtual mask; deferred signals that it lets through arrive.
long change_mask(ProcessBlock& block, SignalFrame& frame) {
  const long result = app_sigprocmask(block, call_argument(frame, 0), call_argument(frame, 1), call_argument(frame, 2),
                                      call_argument(frame, 3));
  if (result == kNotMade) return result;
  // The mask in the frame takes effect after the call.
  system_call(kSysRtSigprocmask, 0, 0, as_word(&frame.mask), 8);
  release_deferred(block, virtually_blocked(block), frame.mask);
  return result;
}

// rt_sigpending(set, bytes): deferred signals are pending as well.
bool pending(ProcessBlock& block, SignalFrame& frame, long& result) {
  const u64 held = deferred_signals(block);
  if (held == 0) return false;
  result = pass(block, frame);
  if (result == 0) *reinterpret_cast<u64*>(call_argument(frame, 0)) |= held & virtually_blocked(block);
  return true;
}

// rt_sigtimedwait(set, info, timeout, bytes) for one of kOurSignals: a deferred signal ends it, and a signal that comes to
// another thread is handed to one that waits (`waits`).
bool wait_for_signal(ProcessBlock& block, SignalFrame& frame, long& result) {
  const Reader reader{true};
  u64 set = 0, unused = 0;
  if (call_argument(frame, 3) != 8 || !reader.load8(call_argument(frame, 0), set) || (set & shared::kOurSignals) == 0)
    return false;
  if (call_argument(frame, 1) != 0 && !reader.load8(call_argument(frame, 1) + sizeof(SignalInfo) - 8, unused))
    return false;
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), true);
  if (entry == nullptr) return false;
  SignalInfo info{};
  SignalFrame call = frame;
  call_argument(call, 1) = as_word(&info);
  entry->waits = set & shared::kOurSignals;
  do {
    if (take_deferred(block, set & shared::kOurSignals, info))
      result = info.signal;
    else
      result = pass(block, call);
    if (result > 0 && is_nudge(block, info))
      result = take_deferred(block, signal_bit(info.signal), info) ? info.signal : kNotMade;
    // Without breakpoints the program makes the call itself.
  } while (result == kNotMade && __atomic_load_n(&block.left, __ATOMIC_RELAXED) == 0 && begin_call(block));
  entry->waits = 0;
  if (result > 0 && call_argument(frame, 1) != 0)
    copy_words(reinterpret_cast<void*>(call_argument(frame, 1)), &info, sizeof info);
  return true;
}

bool asks_at_end(ProcessBlock& block, const AreaHeader& area) {
  if ((area.mode & shared::kModePreloaded) != 0) return true;
  if ((area.mode & shared::kModeDaemonize) == 0 || (block.flags & shared::kBlockFilteredLater) != 0) return false;
  return !borrows_memory(block) && static_cast<u32>(system_call(kSysGetpid)) == area.first_process;
}

// Signals that come from here on come too late, as they would a little later anyway: a timer faster than the flush would keep
// the program from ending. rt_sigprocmask: not under a filter, which may not know it.
//
// If the first program is not the tool's child, only that process asks: its parent then finds the trace complete. getpid: not
// under a filter of its own.
void end(ProcessBlock& block) {
  const AreaHeader* area = session_area(block, 0);
  const u64 others = ~shared::kOurSignals;
  if (area == nullptr || !asks_at_end(block, *area)) return;
  __atomic_store_n(&block.ends, 1, __ATOMIC_RELEASE);
  if ((block.flags & shared::kBlockFiltered) == 0)
    system_call(kSysRtSigprocmask, kSetMask, as_word(&others), 0, sizeof others);
  flush_output(block);
}

// clone3(struct clone_args*, bytes): flags first. The agent keeps them for the child: the struct is on its parent's stack, and
// the parent may have gone on. A child without handlers would die at its next breakpoint: it starts with handlers, and the
// agent clears all but its own (leave_clone).
void begin_clone(ProcessBlock& block, const SignalFrame& frame) {
  const Reader reader{true};
  u64 flags = 0;
  if (!reader.load8(call_argument(frame, 0), flags)) return;
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), true);
  if (entry == nullptr) return;
  entry->clone_flags = flags | shared::kCloneUnderWay;
  if ((flags & kCloneClearSighand) == 0) return;
  entry->cleared = 1;
  *reinterpret_cast<u64*>(call_argument(frame, 0)) = flags & ~kCloneClearSighand;
}

// The call's first argument is still in its register: for clone, the flags. Those of a clone3 are in the ThreadEntry of
// its caller's control block, which a forked child has a copy of; a new thread has a control block of its own, without them.
u64 flags_of_clone(ProcessBlock& block, const Point& point, const SignalFrame& frame) {
  if (point.role == static_cast<u32>(shared::PointRole::vfork_return)) return kCloneVm | kCloneVfork;
  if (point.role == static_cast<u32>(shared::PointRole::fork_return)) return 0;
  if (point.role == static_cast<u32>(shared::PointRole::clone_return)) return call_argument(frame, 0);
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), false);
  const u64 flags = entry != nullptr && entry->clone_flags != 0 ? entry->clone_flags : kCloneVm | kCloneSettls;
  if (entry != nullptr && (call_result(frame) != 0 || (flags & kCloneVm) == 0)) entry->clone_flags = 0;
  return flags;
}

// Restores the flags in the parent. System calls in the child: not under a filter, which may not know them.
void finish_keeping_handlers(ProcessBlock& block, const Point& point, const SignalFrame& frame, bool shares) {
  if (point.role != static_cast<u32>(shared::PointRole::clone3_return)) return;
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), false);
  if (entry == nullptr || entry->cleared == 0) return;
  if (call_result(frame) == 0) {
    if ((block.flags & shared::kBlockFiltered) == 0) clear_handlers(block, shares);
    return;
  }
  *reinterpret_cast<u64*>(call_argument(frame, 0)) |= kCloneClearSighand;
  entry->cleared = 0;
}

bool set_name(ProcessBlock& block, const SignalFrame& frame, long& result) {
  result = pass(block, frame);
  if (result == 0) record_task_name(block, false);
  return true;
}

// Makes the call: true, with its result; false: the displaced copy has to make it.
bool make(ProcessBlock& block, SignalFrame& frame, long& result) {
  switch (call_number(frame)) {
    case kSysRtSigaction:
      result = app_sigaction(block, call_argument(frame, 0), call_argument(frame, 1), call_argument(frame, 2),
                             call_argument(frame, 3));
      return true;
    case kSysRtSigprocmask:
      result = change_mask(block, frame);
      return true;
    case kSysRtSigreturn:
      app_sigreturn(block, frame.sp);
      result = kNotMade;
      return release_deferred(block, virtually_blocked(block), frame.mask);
    case kSysRtSigpending:
      return pending(block, frame, result);
    case kSysRtSigtimedwait:
      return wait_for_signal(block, frame, result);
    case kSysSigaltstack:
      return app_sigaltstack(block, call_argument(frame, 0), call_argument(frame, 1), frame.sp, result);
    case kSysClone3:
      begin_clone(block, frame);
      return false;
    case kSysExitGroup:
      end(block);
      return false;
    case kSysExecve:
    case kSysExecveat:
      result = execute(block, frame);
      return true;
    case kSysPtrace:
      return call_ptrace(block, frame, result);
    case kSysUnshare:
      if ((call_argument(frame, 0) & kCloneNewuser) == 0) return false;
      [[fallthrough]];
    case kSysSetuid:
    case kSysSetgid:
    case kSysSetreuid:
    case kSysSetregid:
    case kSysSetgroups:
    case kSysSetresuid:
    case kSysSetresgid:
    case kSysCapset:
    case kSysSetns:
      result = change_credentials(block, frame);
      return true;
    case kSysOpen:
    case kSysOpenat:
      return open_status(block, frame, result);
    case kSysMmap:
      return map_pages(block, frame, result);
    case kSysMprotect:
    case kSysPkeyMprotect:
      return protect_pages(block, frame, result);
    case kSysSignalfd:
    case kSysSignalfd4:
      note_signalfd(block, call_argument(frame, 1), call_argument(frame, 2));
      return false;
    case kSysRtSigsuspend:
      return wait_with(block, frame, call_argument(frame, 0), result);
    case kSysPpoll:
      return wait_with(block, frame, call_argument(frame, 3), result);
    case kSysEpollPwait:
    case kSysEpollPwait2:
      return wait_with(block, frame, call_argument(frame, 4), result);
    case kSysPselect6:
      return pselect(block, frame, result);
    case kSysPrctl:
      if (call_argument(frame, 0) == kPrSetName) return set_name(block, frame, result);
      if (call_argument(frame, 0) != kPrSetSeccomp) return false;
      [[fallthrough]];
    case kSysSeccomp:
      // From now on the agent makes no system call; the mark comes first, since another thread may be in a hit.
      __atomic_fetch_or(&block.flags, shared::kBlockFiltered | shared::kBlockFilteredLater, __ATOMIC_RELAXED);
      __atomic_fetch_and(&block.flags, ~shared::kBlockFiltersKnown, __ATOMIC_RELAXED);
      result = pass(block, frame);
      return true;
    default:
      return false;
  }
}

}  // namespace

bool make_call(ProcessBlock& block, const Point& point, SignalFrame& frame) {
  long result = kNotMade;
  give_stack(block, frame);
  if (begin_call(block) && !make(block, frame, result)) return false;
  if (result == kNotMade) {
    frame.ip = point.address;
    expect_repeat(block, frame);
    return true;
  }
  finish_call(frame, point.address, result);
  return true;
}

bool begin_call(ProcessBlock& block) {
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), true);
  if (entry == nullptr) return true;
  __atomic_store_n(&entry->attention, 0, __ATOMIC_RELEASE);
  return __atomic_load_n(&entry->pending, __ATOMIC_ACQUIRE) == 0;
}

namespace {

// A call that is made here returns at once, so no signal has to wait for it.
bool make_open(ProcessBlock& block, const SignalFrame& frame, long& result) {
  const bool opens = call_number(frame) == kSysOpen || call_number(frame) == kSysOpenat;
  return opens && open_status(block, frame, result);
}

// A hit at the point is recorded by now: only where there is none may the thread come once more.
bool make_quick(ProcessBlock& block, const Point& point, SignalFrame& frame, long& result) {
  if (!is_quick(call_number(frame))) return false;
  give_stack(block, frame);
  if (!begin_call(block)) return point.consumer == 0;
  return make(block, frame, result) && (result != kNotMade || point.consumer == 0);
}

}  // namespace

bool make_call_after(ProcessBlock& block, const Point& point, SignalFrame& frame) {
  const NumberLoad load = load_at(undo_of(block, point).original, point.address);
  const u64 before = register_of(frame, load.to);
  set_register(frame, load.to, load.value);
  long result = kNotMade;
  const bool is_open = point.role == static_cast<u32>(shared::PointRole::open_call);
  const bool made = is_open ? make_open(block, frame, result) : make_quick(block, point, frame, result);
  if (made && result != kNotMade) {
    finish_call(frame, point.address + point.insn_bytes, result);
    return true;
  }
  set_register(frame, load.to, before);
  if (made) frame.ip = point.address;
  return made;
}

bool wants_open(const SystemCall& call) {
  if (call.number != kSysOpen && call.number != kSysOpenat) return false;
  return may_be_status(call.arguments[call.number == kSysOpen ? 0 : 1]);
}

const Point* point_before_call(const ProcessBlock& block, u64 copy) {
  const Point* points = at_offset<Point>(&block, block.point_offset);
  for (u32 i = 0; i < block.point_count; ++i)
    if (points[i].copy == copy && shared::is_before_call(static_cast<shared::PointRole>(points[i].role)))
      return &points[i];
  return nullptr;
}

void leave_clone(ProcessBlock& block, const Point& point, const SignalFrame& frame) {
  const u64 flags = flags_of_clone(block, point, frame);
  const bool shares = (flags & kCloneVm) != 0;
  const bool lends = shares && (flags & kCloneSettls) == 0;
  after_clone(block, static_cast<u64>(call_result(frame)),
              {!shares                      ? 0
               : (flags & kCloneVfork) != 0 ? shared::kParentWaits
                                            : 1,
               lends});
  finish_keeping_handlers(block, point, frame, shares);
  if (call_result(frame) == 0 && !shares) {
    forget_other_threads(block);
    forget_deferred(block);
    begin_process(block);
  }
  const bool thread = call_result(frame) == 0 && shares && !borrows_memory(block);
  if (thread) begin_thread(block, frame);
  give_stack(block, frame);
  if (call_result(frame) == 0) record_task_name(block, true);
}

}  // namespace uprobe::agent
