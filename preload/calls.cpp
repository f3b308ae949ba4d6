// System calls at points of our own (in libc and ld.so): the few that the agent has to make in the application's stead.
#include "preload/calls.h"

#include "arch/x86/entry/signal_frame.h"
#include "preload/masks.h"
#include "preload/system_call.h"

namespace uprobe::agent {
namespace {

// Numbers: arch/x86/entry/syscalls/syscall_64.tbl.
enum Number : u64 {
  kRtSigaction = 13,
  kRtSigprocmask = 14,
  kExecve = 59,
  kRtSigsuspend = 130,
  kPrctl = 157,
  kPselect6 = 270,
  kExitGroup = 231,
  kPpoll = 271,
  kEpollPwait = 281,
  kSeccomp = 317,
  kExecveat = 322,
  kEpollPwait2 = 441,
};
constexpr u64 kPrSetSeccomp = 22;
constexpr u64 kAtCwd = static_cast<u64>(-100);  // AT_FDCWD

// The call as the application made it.
long pass(const SignalFrame& frame) {
  return system_call(static_cast<long>(frame.ax), frame.di, frame.si, frame.dx, frame.r10, frame.r8, frame.r9);
}

// The tool seizes this thread, so that it stops once more at the end of execve and the agent gets in again. gettid and
// futex: a process whose filter forbids these and still allows execve is possible; it is marked as filtered and then goes
// on untraced.
long execute(ProcessBlock& block, const SignalFrame& frame) {
  AreaHeader* area = session_area(block, 0);
  const bool preloaded = area != nullptr && (area->mode & shared::kModePreloaded) != 0;
  const bool follow = (block.flags & shared::kBlockFiltered) == 0 && !preloaded;
  if (preloaded) flush_output(block);
  const u32 tid = follow ? static_cast<u32>(system_call(kSysGettid)) : 0;
  const bool at = frame.ax == kExecveat;
  const Request request{shared::MailKind::exec_begins, tid, at ? frame.si : frame.di, at ? frame.di : kAtCwd};
  if (follow) ask_tool(block, area, request);
  show_mask_to_successor(block);
  const long result = pass(frame);
  take_mask_back(block);
  if (follow) ask_tool(block, area, {shared::MailKind::exec_failed, tid, 0, 0});
  return result;
}

// A wait with a mask of its own, at `mask`, a register of the frame. The displaced copy makes it where the mask does not
// name our signals; else it is made here, with a mask that does not.
bool wait_with(SignalFrame& frame, u64& mask, long& result) {
  u64 clean = 0;
  const u64 changed = without_our_signals(mask, clean);
  if (changed == mask) return false;
  const u64 original = mask;
  mask = changed;
  result = pass(frame);
  mask = original;
  return true;
}

// pselect6: the sixth argument points to the mask's address and its size.
bool pselect(SignalFrame& frame, long& result) {
  u64 pair[2] = {}, clean = 0;
  const Reader reader{true};
  if (frame.r9 == 0 || !reader.load8(frame.r9, pair[0]) || !reader.load8(frame.r9 + 8, pair[1])) return false;
  const u64 changed = without_our_signals(pair[0], clean);
  if (changed == pair[0]) return false;
  pair[0] = changed;
  const u64 original = frame.r9;
  frame.r9 = as_word(pair);
  result = pass(frame);
  frame.r9 = original;
  return true;
}

}  // namespace

bool make_call(ProcessBlock& block, const Point& point, SignalFrame& frame) {
  long result = 0;
  switch (frame.ax) {
    case kRtSigaction:
      result = app_sigaction(block, frame.di, frame.si, frame.dx, frame.r10);
      break;
    case kRtSigprocmask:
      result = app_sigprocmask(block, frame.di, frame.si, frame.dx, frame.r10);
      // Where the way out is rt_sigreturn, the mask in the frame is the one that will be in force.
      system_call(kSysRtSigprocmask, 0, 0, as_word(&frame.mask), 8);
      break;
    case kExitGroup:
      flush_output(block);
      return false;
    case kExecve:
    case kExecveat:
      result = execute(block, frame);
      break;
    case kRtSigsuspend:
      if (!wait_with(frame, frame.di, result)) return false;
      break;
    case kPpoll:
      if (!wait_with(frame, frame.r10, result)) return false;
      break;
    case kEpollPwait:
    case kEpollPwait2:
      if (!wait_with(frame, frame.r8, result)) return false;
      break;
    case kPselect6:
      if (!pselect(frame, result)) return false;
      break;
    case kPrctl:
      if (frame.di != kPrSetSeccomp) return false;
      [[fallthrough]];
    case kSeccomp:
      // From now on no system call of ours; the mark comes first, another thread may be in a hit.
      __atomic_fetch_or(&block.flags, shared::kBlockFiltered | shared::kBlockFilteredLater, __ATOMIC_RELAXED);
      result = pass(frame);
      break;
    default:
      return false;
  }
  // What `syscall` leaves behind (SDM vol. 2, SYSCALL): rcx = return address, r11 = flags.
  frame.ax = static_cast<u64>(result);
  frame.cx = point.address + 2;
  frame.r11 = frame.flags;
  frame.ip = point.address + 2;
  return true;
}

}  // namespace uprobe::agent
