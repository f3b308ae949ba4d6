// Signals: which are ours, and how the others reach the application as if we were not there.
#include "arch/x86/entry/cpu.h"
#include "engine/shared/agent_header.h"
#include "preload/agent.h"
#include "preload/calls.h"
#include "preload/masks.h"
#include "preload/system_call.h"
#include "preload/thread.h"

namespace uprobe::agent {
namespace {

// What entry.S does after us; a value above is the address of the application's handler.
constexpr u64 kResume = 0, kSigreturn = 1;

constexpr i32 kSigTrap = 5, kSigBus = 7, kSigSegv = 11;
constexpr u64 kSigDfl = 0, kSigIgn = 1;
constexpr u64 kFaultSignals = 1ull << (kSigBus - 1) | 1ull << (kSigSegv - 1);

u64 way_out(const SignalFrame& frame, bool mask_is_clean) {
  const bool plain =
      mask_is_clean && (frame.stack_flags & kStackAutodisarm) == 0 && frame.fpstate != 0 && shadow_stack() == 0;
  return plain ? kResume : kSigreturn;
}

// The application has no handler. A synchronous signal (code > 0) kills whatever the disposition was; one that somebody
// sent kills unless it is ignored. Faults and int3 happen again when the instruction is executed again; the other traps do
// not. System calls are right here: the process is about to die as it would have.
u64 default_action(const SignalInfo& info, u64 handler) {
  if (handler == kSigIgn && info.code <= 0) return kSigreturn;
  const shared::KernelSigaction fallback{kSigDfl, 0, 0, 0};
  system_call(kSysRtSigaction, static_cast<u64>(info.signal), as_word(&fallback), 0, 8);
  const bool recurs = info.code > 0 && (info.signal != kSigTrap || info.code == kSiKernel);
  if (!recurs) {
    const u64 pid = static_cast<u64>(system_call(kSysGetpid)), tid = static_cast<u64>(system_call(kSysGettid));
    system_call(kSysRtTgsigqueueinfo, pid, tid, static_cast<u64>(info.signal), as_word(&info));
  }
  return kSigreturn;
}

// A fault inside a displaced copy happened, for the application, at the original instruction. si_addr is the instruction's
// address for SIGFPE and SIGILL.
void show_original_address(const ProcessBlock& block, SignalInfo& info, SignalFrame& frame) {
  const Point* points = at_offset<Point>(&block, block.point_offset);
  for (u32 i = 0; i < block.point_count; ++i) {
    const Point& point = points[i];
    const u64 distance = frame.ip - point.copy;
    if (distance >= point.copy_bytes || (distance != 0 && distance != point.late_offset)) continue;
    if (distance != 0) frame.sp += point.late_pushed;
    if (info.address == frame.ip) info.address = point.address;
    frame.ip = point.address;
    return;
  }
}

bool fix_up(SignalFrame& frame) {
  const u64 table = as_word(uprobe_fault_table);
  for (const FaultEntry* entry = uprobe_fault_table; entry->insn != 0 || entry->fixup != 0; ++entry) {
    if (table + static_cast<u64>(i64{entry->insn}) != frame.ip) continue;
    frame.ip = table + static_cast<u64>(i64{entry->fixup});
    return true;
  }
  return false;
}

// The call's first argument is still where it was (SYSCALL keeps rdi): the flags, or for clone3 the address of a struct that
// begins with them (uapi/linux/sched.h).
bool child_shares_memory(const Point& point, const SignalFrame& frame, bool may_fault) {
  constexpr u64 kCloneVm = 0x100;
  u64 flags = frame.di;
  const Reader reader{may_fault};
  if (point.role == static_cast<u32>(shared::PointRole::vfork_return)) return true;
  if (point.role == static_cast<u32>(shared::PointRole::clone3_return) && !reader.load8(frame.di, flags)) return false;
  return (flags & kCloneVm) != 0;
}

// Records, does what the point is for besides, and moves the thread on: to the copy, or behind a call already made.
void hit_point(ProcessBlock& block, const Point& point, SignalFrame& frame) {
  const Registers registers = registers_of(frame, point.address);
  const bool may_fault = (frame.mask & kFaultSignals) == 0;
  const Hit hit{&block, &point, &registers, thread_id(block, may_fault), may_fault};
  if (point.consumer != 0) handle_hit(hit);
  if (point.role == static_cast<u32>(shared::PointRole::library_hook))
    ask_tool(block, session_area(block, 0), {shared::MailKind::libraries_changed, hit.tid, 0, 0});
  if (point.role == static_cast<u32>(shared::PointRole::system_call) && make_call(block, point, frame)) return;
  if (point.role >= static_cast<u32>(shared::PointRole::clone_return))
    after_clone(block, frame.ax, child_shares_memory(point, frame, may_fault));
  frame.ip = point.copy;
}

// Not ours: the application's handler, or its default. Where nobody handles it the thread stays in the copy and dies there:
// at the original address it would hit the probe a second time.
u64 pass_on(ProcessBlock& block, SignalInfo& info, SignalFrame& frame) {
  const u64 handler = handler_to_call(block, info.signal);
  if (handler <= kSigIgn) return default_action(info, handler);
  if (info.code > 0) show_original_address(block, info, frame);
  return handler;
}

u64 on_fault(SignalInfo& info, SignalFrame& frame, bool mask_is_clean) {
  if (info.code > 0 && fix_up(frame)) return way_out(frame, mask_is_clean);
  return pass_on(*uprobe_block, info, frame);
}

}  // namespace

extern "C" {

__attribute__((visibility("hidden"), used)) u64 uprobe_on_trap(i32, SignalInfo* info, SignalFrame* frame) {
  ProcessBlock& block = *uprobe_block;
  if (info->code == kSiKernel) {
    const Point* point = find_point(block, frame->ip - 1);
    // A disarmed point may still have been hit; one that was unmapped is somebody else's code by now.
    if (point != nullptr && point->state != static_cast<u32>(shared::PointState::unmapped)) {
      hit_point(block, *point, *frame);
      return way_out(*frame, true);
    }
    const u32 trap = static_cast<u32>(shared::AppSignal::trap);
    if (block.actions[trap].handler <= kSigIgn) frame->ip -= 1;  // executed again, it kills
  }
  return pass_on(block, *info, *frame);
}

// Installed while the application has no handler for the fault.
__attribute__((visibility("hidden"), used)) u64 uprobe_on_fault(i32, SignalInfo* info, SignalFrame* frame) {
  return on_fault(*info, *frame, true);
}

// Installed with the application's flags and mask, in place of its handler.
__attribute__((visibility("hidden"), used)) u64 uprobe_on_app_fault(i32, SignalInfo* info, SignalFrame* frame) {
  return on_fault(*info, *frame, false);
}

}  // extern "C"

}  // namespace uprobe::agent
