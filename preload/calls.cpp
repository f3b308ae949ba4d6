// System calls at points of our own (in libc and ld.so): the few that the agent has to make in the application's stead.
#include "arch/x86/entry/signal_frame.h"
#include "preload/calls.h"
#include "preload/masks.h"
#include "preload/system_call.h"

namespace uprobe::agent {
namespace {

constexpr u64 kSysRtSigactionNumber = 13, kSysRtSigprocmaskNumber = 14, kSysExecve = 59, kSysPrctlNumber = 157,
              kSysSeccomp = 317, kSysExecveat = 322;
constexpr u64 kPrSetSeccomp = 22;
constexpr u64 kAtCwd = static_cast<u64>(-100);  // AT_FDCWD

// The tool seizes this thread, so that it stops once more at the end of execve and the agent gets in again. gettid and
// futex: a process whose filter forbids these and still allows execve is possible; it is marked as filtered and then goes
// on untraced.
long execute(ProcessBlock& block, const SignalFrame& frame) {
  const bool follow = (block.flags & shared::kBlockFiltered) == 0;
  AreaHeader* area = session_area(block, 0);
  const u32 tid = follow ? static_cast<u32>(system_call(kSysGettid)) : 0;
  const bool at = frame.ax == kSysExecveat;
  const Request request{shared::MailKind::exec_begins, tid, at ? frame.si : frame.di, at ? frame.di : kAtCwd};
  if (follow) ask_tool(block, area, request);
  show_mask_to_successor(block);
  const long result = system_call(static_cast<long>(frame.ax), frame.di, frame.si, frame.dx, frame.r10, frame.r8, frame.r9);
  take_mask_back(block);
  if (follow) ask_tool(block, area, {shared::MailKind::exec_failed, tid, 0, 0});
  return result;
}

long pass(const SignalFrame& frame) {
  return system_call(static_cast<long>(frame.ax), frame.di, frame.si, frame.dx, frame.r10, frame.r8, frame.r9);
}

}  // namespace

bool make_call(ProcessBlock& block, const Point& point, SignalFrame& frame) {
  long result = 0;
  switch (frame.ax) {
    case kSysRtSigactionNumber: result = app_sigaction(block, frame.di, frame.si, frame.dx, frame.r10); break;
    case kSysRtSigprocmaskNumber:
      result = app_sigprocmask(block, frame.di, frame.si, frame.dx, frame.r10);
      // Where the way out is rt_sigreturn, the mask in the frame is the one that will be in force.
      system_call(kSysRtSigprocmask, 0, 0, as_word(&frame.mask), 8);
      break;
    case kSysExecve:
    case kSysExecveat: result = execute(block, frame); break;
    case kSysPrctlNumber:
      if (frame.di != kPrSetSeccomp) return false;
      [[fallthrough]];
    case kSysSeccomp:
      // From now on no system call of ours; the mark comes first, another thread may be in a hit.
      __atomic_fetch_or(&block.flags, shared::kBlockFiltered, __ATOMIC_RELAXED);
      result = pass(frame);
      break;
    default: return false;
  }
  // What `syscall` leaves behind (SDM vol. 2, SYSCALL): rcx = return address, r11 = flags.
  frame.ax = static_cast<u64>(result);
  frame.cx = point.address + 2;
  frame.r11 = frame.flags;
  frame.ip = point.address + 2;
  return true;
}

}  // namespace uprobe::agent
