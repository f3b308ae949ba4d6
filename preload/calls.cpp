// SPDX-License-Identifier: MIT
// System calls at internal points (in libc and ld.so): the few that the agent has to make in the application's stead.
#include "preload/calls.h"

#include "arch/entry/signal_frame.h"
#include "preload/copies.h"
#include "preload/deferred_signals.h"
#include "preload/handler_entry.h"
#include "preload/mappings.h"
#include "preload/stacks.h"
#include "preload/status.h"
#include "preload/system_call.h"
#include "preload/task_name.h"
#include "preload/thread.h"
#include "preload/tracers.h"
#include "preload/virtual_mask.h"

namespace uprobe::agent {
namespace {

// Numbers: arch/x86/entry/syscalls/syscall_64.tbl.
enum Number : u64 {
  kOpen = 2,
  kMmap = 9,
  kMprotect = 10,
  kRtSigaction = 13,
  kRtSigprocmask = 14,
  kRtSigreturn = 15,
  kExecve = 59,
  kPtrace = 101,
  kSetuid = 105,
  kSetgid = 106,
  kSetreuid = 113,
  kSetregid = 114,
  kSetgroups = 116,
  kSetresuid = 117,
  kSetresgid = 119,
  kCapset = 126,
  kRtSigpending = 127,
  kRtSigtimedwait = 128,
  kRtSigsuspend = 130,
  kSigaltstack = 131,
  kPrctl = 157,
  kOpenat = 257,
  kPselect6 = 270,
  kExitGroup = 231,
  kPpoll = 271,
  kUnshare = 272,
  kEpollPwait = 281,
  kSetns = 308,
  kSignalfd = 282,
  kSignalfd4 = 289,
  kSeccomp = 317,
  kExecveat = 322,
  kPkeyMprotect = 329,
  kClone3 = 435,
  kEpollPwait2 = 441,
};
constexpr u64 kPrSetName = 15, kPrSetSeccomp = 22;
constexpr u64 kCloneNewuser = 0x10000000;
constexpr u64 kAtCwd = static_cast<u64>(-100);  // AT_FDCWD
constexpr u64 kCloneVm = 0x100, kCloneVfork = 0x4000, kCloneSettls = 0x80000, kCloneClearSighand = u64{1} << 32;
constexpr long kInterrupted = -4;  // EINTR

// The call as the application made it; kNotMade when a signal has come since begin_call.
long pass(ProcessBlock& block, const SignalFrame& frame) {
  return interruptible_call(block, static_cast<long>(frame.ax), frame.di, frame.si, frame.dx, frame.r10, frame.r8,
                            frame.r9);
}

// A signal that comes from here on keeps `pass` from making the call. False: one has come before.
bool begin_call(ProcessBlock& block) {
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), true);
  if (entry == nullptr) return true;
  __atomic_store_n(&entry->attention, 0, __ATOMIC_RELEASE);
  return __atomic_load_n(&entry->pending, __ATOMIC_ACQUIRE) == 0;
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
  const bool at = frame.ax == kExecveat;
  const Request request{shared::MailKind::exec_begins, tid, at ? frame.si : frame.di, at ? frame.di : kAtCwd};
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

// All processes that share a live part are of one trust domain, so the process has the live part of its new domain when the
// call returns. libc makes such a call in each thread of a process; each asks, and the last request covers the changes of all
// of them. A child in its parent's memory has no live part of its own.
long change_credentials(ProcessBlock& block, const SignalFrame& frame) {
  const long result = pass(block, frame);
  const bool asks = result == 0 && (block.flags & shared::kBlockFiltered) == 0 && !borrows_memory(block);
  if (asks) {
    const u32 tid = static_cast<u32>(system_call(kSysGettid));
    ask_tool(block, session_area(block, 0), {shared::MailKind::credentials_changed, tid, 0, 0});
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
  if (frame.r9 == 0 || !reader.load8(frame.r9, pair[0]) || !reader.load8(frame.r9 + 8, pair[1])) return false;
  const u64 original = frame.r9;
  frame.r9 = as_word(pair);
  const bool made = wait_with(block, frame, pair[0], result);
  frame.r9 = original;
  return made;
}

// Makes the call and updates the virtual mask; deferred signals that it lets through arrive.
long change_mask(ProcessBlock& block, SignalFrame& frame) {
  const long result = app_sigprocmask(block, frame.di, frame.si, frame.dx, frame.r10);
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
  if (result == 0) *reinterpret_cast<u64*>(frame.di) |= held & virtually_blocked(block);
  return true;
}

// rt_sigtimedwait(set, info, timeout, bytes) for one of kOurSignals: a deferred signal ends it, and a signal that comes to
// another thread is handed to one that waits (`waits`).
bool wait_for_signal(ProcessBlock& block, SignalFrame& frame, long& result) {
  const Reader reader{true};
  u64 set = 0, unused = 0;
  if (frame.r10 != 8 || !reader.load8(frame.di, set) || (set & shared::kOurSignals) == 0) return false;
  if (frame.si != 0 && !reader.load8(frame.si + sizeof(SignalInfo) - 8, unused)) return false;
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), true);
  if (entry == nullptr) return false;
  SignalInfo info{};
  SignalFrame call = frame;
  call.si = as_word(&info);
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
  if (result > 0 && frame.si != 0) copy_words(reinterpret_cast<void*>(frame.si), &info, sizeof info);
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
  if (!reader.load8(frame.di, flags)) return;
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), true);
  if (entry == nullptr) return;
  entry->clone_flags = flags | shared::kCloneUnderWay;
  if ((flags & kCloneClearSighand) == 0) return;
  entry->cleared = 1;
  *reinterpret_cast<u64*>(frame.di) = flags & ~kCloneClearSighand;
}

// rdi still has the call's first argument (SYSCALL keeps it): for clone, the flags. Those of a clone3 are in the ThreadEntry of
// its caller's control block, which a forked child has a copy of; a new thread has a control block of its own, without them.
u64 flags_of_clone(ProcessBlock& block, const Point& point, const SignalFrame& frame) {
  if (point.role == static_cast<u32>(shared::PointRole::vfork_return)) return kCloneVm | kCloneVfork;
  if (point.role == static_cast<u32>(shared::PointRole::fork_return)) return 0;
  if (point.role == static_cast<u32>(shared::PointRole::clone_return)) return frame.di;
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), false);
  const u64 flags = entry != nullptr && entry->clone_flags != 0 ? entry->clone_flags : kCloneVm | kCloneSettls;
  if (entry != nullptr && (frame.ax != 0 || (flags & kCloneVm) == 0)) entry->clone_flags = 0;
  return flags;
}

// Restores the flags in the parent. System calls in the child: not under a filter, which may not know them.
void finish_keeping_handlers(ProcessBlock& block, const Point& point, const SignalFrame& frame, bool shares) {
  if (point.role != static_cast<u32>(shared::PointRole::clone3_return)) return;
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), false);
  if (entry == nullptr || entry->cleared == 0) return;
  if (frame.ax == 0) {
    if ((block.flags & shared::kBlockFiltered) == 0) clear_handlers(block, shares);
    return;
  }
  *reinterpret_cast<u64*>(frame.di) |= kCloneClearSighand;
  entry->cleared = 0;
}

bool set_name(ProcessBlock& block, const SignalFrame& frame, long& result) {
  result = pass(block, frame);
  if (result == 0) record_task_name(block, false);
  return true;
}

// Makes the call: true, with its result; false: the displaced copy has to make it.
bool make(ProcessBlock& block, SignalFrame& frame, long& result) {
  switch (frame.ax) {
    case kRtSigaction:
      result = app_sigaction(block, frame.di, frame.si, frame.dx, frame.r10);
      return true;
    case kRtSigprocmask:
      result = change_mask(block, frame);
      return true;
    case kRtSigreturn:
      app_sigreturn(block, frame.sp);
      result = kNotMade;
      return release_deferred(block, virtually_blocked(block), frame.mask);
    case kRtSigpending:
      return pending(block, frame, result);
    case kRtSigtimedwait:
      return wait_for_signal(block, frame, result);
    case kSigaltstack:
      return app_sigaltstack(block, frame.di, frame.si, frame.sp, result);
    case kClone3:
      begin_clone(block, frame);
      return false;
    case kExitGroup:
      end(block);
      return false;
    case kExecve:
    case kExecveat:
      result = execute(block, frame);
      return true;
    case kPtrace:
      return call_ptrace(block, frame, result);
    case kUnshare:
      if ((frame.di & kCloneNewuser) == 0) return false;
      [[fallthrough]];
    case kSetuid:
    case kSetgid:
    case kSetreuid:
    case kSetregid:
    case kSetgroups:
    case kSetresuid:
    case kSetresgid:
    case kCapset:
    case kSetns:
      result = change_credentials(block, frame);
      return true;
    case kOpen:
    case kOpenat:
      return open_status(block, frame, result);
    case kMmap:
      return map_pages(block, frame, result);
    case kMprotect:
    case kPkeyMprotect:
      return protect_pages(block, frame, result);
    case kSignalfd:
    case kSignalfd4:
      note_signalfd(block, frame.si, frame.dx);
      return false;
    case kRtSigsuspend:
      return wait_with(block, frame, frame.di, result);
    case kPpoll:
      return wait_with(block, frame, frame.r10, result);
    case kEpollPwait:
    case kEpollPwait2:
      return wait_with(block, frame, frame.r8, result);
    case kPselect6:
      return pselect(block, frame, result);
    case kPrctl:
      if (frame.di == kPrSetName) return set_name(block, frame, result);
      if (frame.di != kPrSetSeccomp) return false;
      [[fallthrough]];
    case kSeccomp:
      // From now on the agent makes no system call; the mark comes first, since another thread may be in a hit.
      __atomic_fetch_or(&block.flags, shared::kBlockFiltered | shared::kBlockFilteredLater, __ATOMIC_RELAXED);
      result = pass(block, frame);
      return true;
    default:
      return false;
  }
}

// The registers after `syscall` (SDM vol. 2, SYSCALL): rcx = return address, r11 = flags.
void leave_call(u64 address, SignalFrame& frame, long result) {
  frame.ax = static_cast<u64>(result);
  frame.cx = address + 2;
  frame.r11 = frame.flags;
  frame.ip = address + 2;
}

// The instruction at a point of role open_call: `mov $n, %eax`, `%edx` or `%edi`, which clears the upper half as well.
struct Mov {
  shared::Reg to;
  u32 value;
};
Mov mov_at(const ProcessBlock& block, const Point& point) {
  const u8* code = undo_of(block, point).original;
  const u32 reg = code[0] & 7;
  Mov mov{reg == 0 ? shared::Reg::ax : reg == 2 ? shared::Reg::dx : shared::Reg::di, 0};
  __builtin_memcpy(&mov.value, code + 1, sizeof mov.value);
  return mov;
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
  leave_call(point.address, frame, result);
  return true;
}

bool wants_open(const ProcessBlock& block, const Point& point, const shared::Registers& registers) {
  const Mov mov = mov_at(block, point);
  const auto value = [&](shared::Reg reg) { return mov.to == reg ? mov.value : registers[reg]; };
  const u64 number = value(shared::Reg::ax);
  if (number != kOpen && number != kOpenat) return false;
  return may_be_status(value(number == kOpen ? shared::Reg::di : shared::Reg::si));
}

// A call that is made here returns at once, so no signal has to wait for it.
bool make_open(ProcessBlock& block, const Point& point, SignalFrame& frame) {
  const Mov mov = mov_at(block, point);
  u64& target = mov.to == shared::Reg::ax ? frame.ax : mov.to == shared::Reg::dx ? frame.dx : frame.di;
  const u64 before = target;
  target = mov.value;
  long result = 0;
  const bool opens = frame.ax == kOpen || frame.ax == kOpenat;
  if (!opens || !open_status(block, frame, result)) {
    target = before;
    return false;
  }
  leave_call(point.address + shared::kBeforeOpen, frame, result);
  return true;
}

const Point* open_point_with_copy(const ProcessBlock& block, u64 copy) {
  const Point* points = at_offset<Point>(&block, block.point_offset);
  for (u32 i = 0; i < block.point_count; ++i)
    if (points[i].copy == copy && points[i].role == static_cast<u32>(shared::PointRole::open_call)) return &points[i];
  return nullptr;
}

void leave_clone(ProcessBlock& block, const Point& point, const SignalFrame& frame) {
  const u64 flags = flags_of_clone(block, point, frame);
  const bool shares = (flags & kCloneVm) != 0;
  const bool lends = shares && (flags & kCloneSettls) == 0;
  after_clone(block, frame.ax, {!shares ? 0 : (flags & kCloneVfork) != 0 ? shared::kParentWaits : 1, lends});
  finish_keeping_handlers(block, point, frame, shares);
  if (frame.ax == 0 && !shares) {
    forget_other_threads(block);
    forget_deferred(block);
    begin_process(block);
  }
  const bool thread = frame.ax == 0 && shares && !borrows_memory(block);
  if (thread) begin_thread(block, frame);
  give_stack(block, frame);
  if (frame.ax == 0) record_task_name(block, true);
}

}  // namespace uprobe::agent
