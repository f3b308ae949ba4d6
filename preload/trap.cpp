// SPDX-License-Identifier: MIT
// Signals: the agent's own, and the others, which reach the application as if the agent were not there.
#include "arch/entry/step_kind.h"
#include "engine/shared/agent_header.h"
#include "preload/actions.h"
#include "preload/agent.h"
#include "preload/calls.h"
#include "preload/copies.h"
#include "preload/deferred_signals.h"
#include "preload/handler_entry.h"
#include "preload/jump_stacks.h"
#include "preload/mappings.h"
#include "preload/restarts.h"
#include "preload/returns.h"
#include "preload/ring.h"
#include "preload/stacks.h"
#include "preload/steps.h"
#include "preload/stubs.h"
#include "preload/system_call.h"
#include "preload/thread.h"
#include "preload/trampolines.h"
#include "preload/unwinders.h"
#include "preload/virtual_mask.h"

namespace uprobe::agent {
namespace {

constexpr i32 kTrapBreakpoint = 1, kTrapTrace = 2;  // si_code
constexpr u64 kFaultSignals = 1ull << (kSigBus - 1) | 1ull << (kSigSegv - 1);

// A single step. A virtual machine sometimes loses DR6.BS before the kernel reads it, and the kernel then takes the step for
// another trap (exc_debug_user in the kernel's traps.c, get_si_code); copies, trampolines and the agent have none.
bool is_step(const SignalInfo& info) {
  return info.signal == kSigTrap && (info.code == kTrapTrace || info.code == kTrapBreakpoint);
}

// Goes back to the state in the frame: to the application, or to the interrupted agent.
Exit leave(ProcessBlock& block, SignalFrame& frame, bool mask_is_clean) {
  const bool plain = mask_is_clean && can_resume(frame);
  if (in_agent(block, frame.ip)) return {plain ? kResumeNested : kSigreturnNested, 0};
  frame.uc_link = pending_word(block);
  return {plain ? kResume : kSigreturn, 0};
}

bool fix_up(SignalFrame& frame) {
  const u64 table = as_word(uprobe_fault_table);
  for (const FaultEntry* entry = uprobe_fault_table; entry->insn != 0 || entry->fixup != 0; ++entry) {
    if (table + static_cast<u64>(i64{entry->insn}) != frame.ip) continue;
    frame.ip = table + static_cast<u64>(i64{entry->fixup});
    return true;
  }
  const u64 in_trampoline = trampoline_fixup(*uprobe_block, frame.ip);
  if (in_trampoline == 0) return false;
  frame.ip = in_trampoline;
  return true;
}

// One record per consumer, unless this arrival is a re-execution. The hit's other fields are set.
void record_arrival(const Point& point, const SignalFrame& frame, Hit& hit) {
  const bool repeat = is_repeat(*hit.block, point, frame);
  if (point.consumer == 0 || repeat) return;
  handle_hit(hit);
  if (!is_overridden(hit)) lead_through_stub(*hit.block, point, frame.sp, hit.may_fault);
}

// Returns the thread's id.
u32 record_hit(ProcessBlock& block, const Point& point, const SignalFrame& frame, bool may_fault) {
  Registers registers = registers_of(frame, point.address);
  Hit hit{&block, &point, &registers, thread_id(block, may_fault), may_fault, false, false, 0, frame.fpstate};
  record_arrival(point, frame, hit);
  return hit.tid;
}

// The same where triggers may change the program. True: the thread does not go on in the copy.
bool record_and_change(ProcessBlock& block, const Point& point, SignalFrame& frame, bool may_fault) {
  ChangingHit changing;
  changing.registers = registers_of(frame, point.address);
  Hit hit{&block, &point, &changing.registers, thread_id(block, may_fault), may_fault, false, true, 0, frame.fpstate};
  record_arrival(point, frame, hit);
  if (carry_out(changing.changes, frame)) return true;
  if (changing.changes.gate == 0) return false;
  frame.ip = point.copy;
  call_back(changing.changes, point.copy, frame);
  return true;
}

// An instruction that takes the trap flag from the stack: the instruction that traps would be its copy's jump back. So the flags are set
// here, and the thread, which traps after its next instruction, goes on after the popf. False: it is another instruction.
bool pop_trap_flag(const ProcessBlock& block, const Point& point, SignalFrame& frame) {
  const u32 bytes = popped_flags(undo_of(block, point).original, point.insn_bytes);
  if (bytes == 0) return false;
  u64 value = 0;
  const Reader reader{(frame.mask & kFaultSignals) == 0};
  if (!reader.load8(frame.sp, value) || (value & ~frame.flags & kTrapFlag) == 0) return false;
  pop_flags(frame, value, bytes);
  frame.ip = point.address + point.insn_bytes;
  return true;
}

bool is_after_clone(const Point& point) {
  return point.role >= static_cast<u32>(shared::PointRole::clone_return) &&
         point.role <= static_cast<u32>(shared::PointRole::fork_return);
}

// Records the hit, acts by the point's role, and moves the thread on: to the copy, after a call that was made, or to the
// point again, if a signal has to be handled before its call.
void hit_point(ProcessBlock& block, const Point& point, SignalFrame& frame) {
  const bool may_fault = (frame.mask & kFaultSignals) == 0;
  if (point.role == static_cast<u32>(shared::PointRole::probe)) {
    if (!record_and_change(block, point, frame, may_fault) && !pop_trap_flag(block, point, frame))
      frame.ip = point.copy;
    return;
  }
  const u32 tid = record_hit(block, point, frame, may_fault);
  if (point.role == static_cast<u32>(shared::PointRole::library_hook)) {
    give_stack(block, frame);
    if (is_quiet_hook(block))
      learn_rseq(block);  // libc may have set up the thread by now
    else
      ask_tool(block, session_area(block, 0), {shared::MailKind::libraries_changed, tid, 0, 0});
  }
  if (point.role == static_cast<u32>(shared::PointRole::system_call) && make_call(block, point, frame)) return;
  const bool is_before = shared::is_before_call(static_cast<shared::PointRole>(point.role));
  if (is_before && make_call_after(block, point, frame)) return;
  if (is_after_clone(point)) leave_clone(block, point, frame);
  if (point.role == static_cast<u32>(shared::PointRole::find_object) && find_object(block, frame)) return;
  if (point.role == static_cast<u32>(shared::PointRole::iterate_objects) && iterate_objects(point, frame)) return;
  frame.ip = point.copy;
}

// The program has changed the instruction and got it back: the thread goes on there.
void hit_changed(ProcessBlock& block, const Point& point, SignalFrame& frame) {
  record_hit(block, point, frame, (frame.mask & kFaultSignals) == 0);
  frame.ip = point.address;
}

// Whether memory has the bytes for which a watched point was made.
bool has_its_code(const ProcessBlock& block, const Point& point, const Reader& reader) {
  u8 now[sizeof(shared::Undo::original)];
  const shared::Undo& undo = undo_of(block, point);
  const u32 bytes = point.insn_bytes <= sizeof now ? point.insn_bytes : 0;
  return reader.copy(now, point.address, bytes) == bytes && __builtin_memcmp(now, undo.original, bytes) == 0;
}

// A hardware breakpoint of the tool, before the program's own instruction, which runs next. One of another code that is there by
// now, or one that comes late, is no hit.
void hit_watched(ProcessBlock& block, const PerfTrap& trap, const SignalFrame& frame) {
  const Point* point = find_point(block, frame.ip);
  if (point == nullptr || point->state != static_cast<u32>(shared::PointState::watched)) return;
  const bool may_fault = (frame.mask & kFaultSignals) == 0;
  if ((trap.flags & kTrapLate) == 0 && has_its_code(block, *point, Reader{may_fault}))
    record_hit(block, *point, frame, may_fault);
}

// The tool names its breakpoints by the process block.
bool is_watch(const ProcessBlock& block, const SignalInfo& info) {
  return info.code == kTrapPerf && perf_trap(info).data == as_word(&block);
}

// Shows where the application's instruction faulted, or would go on after a step, in the program's terms. False: the program
// has no such step.
bool show_original(ProcessBlock& block, SignalInfo& info, SignalFrame& frame) {
  const Arrival arrival = info.code <= 0 ? Arrival::signal : is_step(info) ? Arrival::step : Arrival::fault;
  const u64 ip = frame.ip;
  const Moved moved = move_to_original(block, frame, arrival);
  if (moved == Moved::to_original && info.code > 0 && info.address == ip) info.address = frame.ip;
  return moved != Moved::within;
}

// Whether a signal finds the thread in the middle of a hit that it can finish first.
bool can_wait(ProcessBlock& block, const SignalFrame& frame) {
  return in_agent(block, frame.ip) || can_step(block, frame);
}

// One of kOurSignals that is not the agent's: the application's handler, or its default. A fault under a blocked signal kills
// (kernel/signal.c, force_sig_info_to_task); a signal that was sent waits.
Exit pass_on(ProcessBlock& block, SignalInfo& info, SignalFrame& frame, bool mask_is_clean) {
  const bool sent = info.code <= 0, nested = in_agent(block, frame.ip);
  const bool blocked = (virtually_blocked(block) & signal_bit(info.signal)) != 0;
  const bool nudge = sent && is_nudge(block, info);
  if (nudge && (blocked || !take_deferred(block, signal_bit(info.signal), info)))
    return leave(block, frame, mask_is_clean);
  if (sent && blocked && hold(block, info)) {
    if (nested) look_again(frame);
    return leave(block, frame, mask_is_clean);
  }
  const AppHandler handler = sent || !blocked ? handler_to_call(block, info.signal) : AppHandler{};
  if (handler.address <= kSigIgn) {
    default_action(info, handler.address);
    return leave(block, frame, false);
  }
  if (info.signal == kSigTrap) {
    block_mask_of(block, info.signal);
    frame_around(frame).restorer = restorer_of(block, info.signal);
  }
  if (sent) leave_for_handler(block, frame, mask_is_clean);
  if (sent && can_wait(block, frame) && defer(block, handler, info, frame)) {
    if (mask_is_clean) return leave(block, frame, true);
    // The hit that goes on may make loads that fault.
    frame.mask |= mask_of(block, info.signal) & ~shared::kOurSignals;
    return leave(block, frame, false);
  }
  if (!show_original(block, info, frame)) return leave(block, frame, mask_is_clean);
  return enter(block, handler, frame);
}

// Finishes a hit by jump that cannot go on, for want of stack or because the application single-steps (it has one instruction
// there): it becomes a hit by breakpoint. False: the thread was in no trampoline.
bool finish_jump(ProcessBlock& block, SignalFrame& frame, bool may_fault) {
  const Jump jump = leave_trampoline(block, frame);
  if (jump != Jump::arriving) return jump == Jump::recorded;
  const Point* point = find_point(block, frame.ip);
  record_hit(block, *point, frame, may_fault && (frame.mask & kFaultSignals) == 0);
  frame.ip = point->copy;
  return true;
}

// The same for a return that is interrupted in a stub.
bool finish_stub_return(ProcessBlock& block, SignalFrame& frame, bool may_fault) {
  return finish_return(block, frame, may_fault && (frame.mask & kFaultSignals) == 0);
}

// Through a whole chain of tail calls.
bool finished_return_path(ProcessBlock& block, SignalFrame& frame) {
  bool has_returned = false;
  while (finish_stub_return(block, frame, true)) has_returned = true;
  return has_returned;
}

// Of a thread that was on its way to an int3 of the agent's, to have it made there: the copy leads to the kernel's call, which has
// no point.
void make_open_that_waits(ProcessBlock& block, SignalFrame& frame) {
  const Point* point = point_before_call(block, frame.ip);
  if (point != nullptr && point->role == static_cast<u32>(shared::PointRole::open_call))
    make_call_after(block, *point, frame);
}

}  // namespace

// The hit is taken only if a prefix window leads to the place, which is in the middle of its jump.
void leave_for_handler(ProcessBlock& block, SignalFrame& frame, bool may_fault) {
  const Jump jump = leave_trampoline(block, frame);
  if (jump == Jump::recorded) make_open_that_waits(block, frame);
  if (jump != Jump::arriving) return;
  const Point* point = find_point(block, frame.ip);
  if (point == nullptr || point->prefix_window == 0) return;
  record_hit(block, *point, frame, may_fault && (frame.mask & kFaultSignals) == 0);
  frame.ip = point->copy;
}

namespace {

Exit on_fault(SignalInfo& info, SignalFrame& frame, bool mask_is_clean) {
  ProcessBlock& block = *uprobe_block;
  if (info.code > 0 &&
      (fix_up(frame) || finish_jump(block, frame, mask_is_clean) || finish_stub_return(block, frame, mask_is_clean)))
    return leave(block, frame, mask_is_clean);
  if (info.code > 0 && has_come_back(frame.ip)) {
    hit_point(block, begin_return(frame), frame);
    return leave(block, frame, mask_is_clean);
  }
  return pass_on(block, info, frame, mask_is_clean);
}

}  // namespace

extern "C" {

__attribute__((visibility("hidden"), used)) Exit uprobe_on_trap(i32, SignalInfo* info, SignalFrame* frame) {
  ProcessBlock& block = *uprobe_block;
  if (info->code == kSiKernel && (is_end_of_jump(frame->ip) || is_end_of_return(frame->ip))) {
    leave_trampoline(block, *frame);
    if (const Point* point = point_before_call(block, frame->ip)) make_call_after(block, *point, *frame);
    return leave(block, *frame, true);
  }
  if (info->code == kSiKernel) {
    if (leave_switch_trap(block, *frame)) {
      if (!give_jump_stack(block)) hit_point(block, *find_point(block, frame->ip), *frame);
      return leave(block, *frame, true);
    }
    const Point* point = find_point(block, frame->ip - shared::kBreakpointBytes);
    const Code code = point != nullptr ? code_at(block, *point, *frame) : Code::foreign;
    if (code != Code::foreign) {
      code == Code::ours ? hit_point(block, *point, *frame) : hit_changed(block, *point, *frame);
      return leave(block, *frame, true);
    }
    if (is_abort(block, *frame)) {
      leave_sequence(block, *frame);
      return leave(block, *frame, true);
    }
    const bool blocked = (virtually_blocked(block) & signal_bit(kSigTrap)) != 0;
    if (blocked || block.actions[static_cast<u32>(shared::AppSignal::trap)].handler <= kSigIgn)
      frame->ip -= shared::kBreakpointBytes;  // executed again, the int3 kills
  }
  if (is_watch(block, *info)) {
    hit_watched(block, perf_trap(*info), *frame);
    return leave(block, *frame, true);
  }
  if (is_step(*info)) {
    if (end_step(block, *frame)) return leave(block, *frame, true);
    // A step of the program's own over a return ends after the call, whatever code lies between.
    const bool has_returned = finished_return_path(block, *frame);
    if (!has_returned && (finish_jump(block, *frame, true) || in_agent(block, frame->ip)))
      return leave(block, *frame, true);
  }
  return pass_on(block, *info, *frame, true);
}

// Installed while the application has no handler for the fault.
__attribute__((visibility("hidden"), used)) Exit uprobe_on_fault(i32, SignalInfo* info, SignalFrame* frame) {
  return on_fault(*info, *frame, true);
}

// Installed with the application's flags and mask, in place of its handler.
__attribute__((visibility("hidden"), used)) Exit uprobe_on_app_fault(i32, SignalInfo* info, SignalFrame* frame) {
  return on_fault(*info, *frame, false);
}

// Any other signal that the application handles, installed with its flags and mask.
__attribute__((visibility("hidden"), used)) Exit uprobe_on_signal(i32 signal, SignalInfo* info, SignalFrame* frame) {
  ProcessBlock& block = *uprobe_block;
  const shared::OtherAction action = block.others[signal];  // 1 to 64: it was installed for one of these
  const AppHandler handler{action.handler, action.flags};
  leave_for_handler(block, *frame, true);
  if (can_wait(block, *frame) && defer(block, handler, *info, *frame)) return leave(block, *frame, true);
  move_to_original(block, *frame, Arrival::signal);
  return enter(block, handler, *frame);
}

}  // extern "C"

}  // namespace uprobe::agent
