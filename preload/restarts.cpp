// SPDX-License-Identifier: MIT
// Restartable sequences of the program. The kernel knows a sequence by its descriptor (struct rseq_cs: start, length, abort
// handler), which the thread's rseq area points to. A thread that gets a signal inside goes on at the abort handler, and the
// signal frame shows it there (kernel/rseq.c, rseq_ip_fixup). So after a breakpoint inside:
//
//     sequence: ... trap ...                       a breakpoint of the tool
//               .long SIGNATURE                    the kernel compares it with the thread's registration
//     abort:    ...                                frame.ip; the area names no descriptor any more
//
// The frame does not show which breakpoint it was. The tool finds the sequence and removes all of its probes; until then the
// thread would come back, and trap, for ever.
//
// System calls, in the handler of SIGTRAP: those of a request (mail.cpp); rseq(2) with arguments that it refuses, which tells
// whether the thread has an area; and, if the tool is gone, mprotect of pages of text, which stay executable and readable. None
// is made under a filter that the program has put in force.
#include "preload/restarts.h"

#include "engine/shared/future_jump.h"
#include "preload/copies.h"
#include "preload/slots.h"
#include "preload/system_call.h"
#include "preload/thread.h"
#include "preload/virtual_mask.h"

namespace uprobe::agent {
namespace {

using shared::kRseqSignature;
constexpr u32 kAreaBytes = 32;  // of the original struct rseq
constexpr u64 kNoUsersAddress = ~u64{0} << 47;
constexpr long kBusy = -16, kInvalid = -22;

bool is_filtered(const ProcessBlock& block) {
  return (__atomic_load_n(&block.flags, __ATOMIC_RELAXED) & (shared::kBlockFiltered | shared::kBlockFilteredLater)) !=
         0;
}

bool has_probes(const ProcessBlock& block) {
  const Point* points = at_offset<Point>(&block, block.point_offset);
  for (u32 i = 0; i < block.point_count; ++i)
    if (points[i].role == static_cast<u32>(shared::PointRole::probe)) return true;
  return false;
}

// The end of the word is a breakpoint.
bool can_trap(u32 before) { return shared::ends_with_breakpoint(before); }

long try_area(u64 area, u32 signature) { return system_call(kSysRseq, area, kAreaBytes, 0, signature); }

// The thread's registration: rseq(2) says EINVAL for a second area, EBUSY for the same one, EFAULT (or ENOSYS) else.
bool has_area() { return try_area(kNoUsersAddress, 0) == kInvalid; }
bool has_usual_signature(const ProcessBlock& block) {
  const i32 offset = block.rseq_offset;
  return offset != 0 && try_area(thread_pointer() + static_cast<u64>(i64{offset}), kRseqSignature) == kBusy;
}

bool is_ours(const ProcessBlock& block, u64 address) {
  return in_agent(block, address) || island_around(block, address).end != 0;
}

bool dies_of_traps(const ProcessBlock& block) {
  return block.actions[static_cast<u32>(shared::AppSignal::trap)].handler <= kSigIgn;
}

// ---- if the tool is gone

bool is_gone(const ProcessBlock& block, const AreaHeader* area) {
  return __atomic_load_n(&block.tool_gone, __ATOMIC_RELAXED) != 0 ||
         (area != nullptr && __atomic_load_n(&area->tool_gone, __ATOMIC_ACQUIRE) != 0);
}

// Whether it is a breakpoint as yet.
bool is_future_jump(const Point& point, const shared::Undo& undo) {
  u8 text[shared::kJumpBytes];
  for (u32 i = 0; i < shared::kJumpBytes; ++i) {
    u64 byte = 0;
    if (!uprobe_peek1(point.address + i, &byte)) return false;
    text[i] = static_cast<u8>(byte);
  }
  return shared::is_future_jump(point, undo, text);
}

bool is_breakpoint(const Point& point, const shared::Undo& undo) {
  return point.state == static_cast<u32>(shared::PointState::armed) && point.prefix_window == 0 &&
         point.role == static_cast<u32>(shared::PointRole::probe) &&
         (point.jump_bytes == 0 || is_future_jump(point, undo));
}

bool protect(u64 page, u64 protection) {
  constexpr u64 kPage = 4096;
  return system_call(kSysMprotect, page & ~(kPage - 1), kPage, protection) == 0;
}

// One byte, so a processor sees either the old or the new one: a thread that traps still finds its copy.
void put_back(Point& point, shared::Undo& undo) {
  constexpr u64 kRead = 1, kWrite = 2, kExecute = 4;
  auto* text = reinterpret_cast<volatile u8*>(point.address);
  u64 now = 0;
  if (!uprobe_peek1(point.address, &now) || now != shared::kBreakpoint) return;
  if (!protect(point.address, kRead | kWrite | kExecute)) return;
  if (*text == shared::kBreakpoint) *text = undo.original[0];
  undo.state = 0;
  __atomic_store_n(&point.state, static_cast<u32>(shared::PointState::disarmed), __ATOMIC_RELEASE);
  protect(point.address, kRead | kExecute);
}

// Which breakpoint it was is unknown: all go. A thread that finds another thread at it comes again until it is done.
void put_all_back(ProcessBlock& block) {
  u32 expected = 0;
  if (!__atomic_compare_exchange_n(&block.alone, &expected, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return;
  Point* points = at_offset<Point>(&block, block.point_offset);
  auto* undo = at_offset<shared::Undo>(&block, block.undo_offset);
  for (u32 i = 0; i < block.point_count; ++i)
    if (is_breakpoint(points[i], undo[i])) put_back(points[i], undo[i]);
  __atomic_store_n(&block.alone, 0, __ATOMIC_RELEASE);
}

}  // namespace

// A trap of the program's own, whose int3 another thread has since removed, looks the same except for the signature.
bool is_abort(ProcessBlock& block, const SignalFrame& frame) {
  const Reader reader{(frame.mask & shared::kOurSignals) == 0};
  u32 before = 0;
  if (reader.copy(reinterpret_cast<u8*>(&before), frame.ip - sizeof before, sizeof before) < sizeof before)
    return false;
  if (can_trap(before) || is_ours(block, frame.ip) || !has_probes(block)) return false;
  if (before == kRseqSignature) return true;
  if (is_filtered(block)) return dies_of_traps(block);
  return has_area() && !has_usual_signature(block);
}

void leave_sequence(ProcessBlock& block, const SignalFrame& frame) {
  if (is_filtered(block)) return;
  const bool may_fault = (frame.mask & shared::kOurSignals) == 0;
  AreaHeader* const area = session_area(block, 0);
  ask_tool(block, area, {shared::MailKind::sequence_aborted, thread_id(block, may_fault), frame.ip, frame.sp});
  if (is_gone(block, area)) put_all_back(block);
}

}  // namespace uprobe::agent
