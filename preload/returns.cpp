// SPDX-License-Identifier: MIT
// The returns of the application's handlers: their rt_sigreturn restores a mask and a stack that the handler may have
// changed, so the agent has to see it. glibc's restorer carries a point. musl's cannot: it has no unwind information, and
// unwinders know it by its bytes, which a point would change.
//
// A handler with such a restorer gets the agent's as its return address: the same bytes, in memory that can be read and not
// executed. An unwinder finds the bytes that it looks for; the thread that returns there faults, and SIGSEGV brings it to the
// agent.
//
//   handler --ret--> visible restorer --SIGSEGV--> uprobe_on_fault --> as at a point of role system_call --> return copy
//
// A fault while SIGSEGV is blocked kills. The kernel blocks it only in a SIGSEGV handler of the program's own; such a handler
// is installed with SA_NODEFER if the agent sees it return (virtual_mask.cpp), and its virtual mask is kept as for SIGTRAP.
#include "preload/returns.h"

#include "arch/entry/cpu.h"
#include "arch/shared/signal_return.h"
#include "preload/system_call.h"
#include "preload/virtual_mask.h"

namespace uprobe::agent {
namespace {

extern "C" {
extern const u8 uprobe_visible_restorer[] __attribute__((visibility("hidden")));
extern const u8 uprobe_visible_syscall[] __attribute__((visibility("hidden")));
}

constexpr u64 kNumberBytes = shared::kSignalReturnCall;
constexpr u32 kWordOfRestorer = 7;

// The restorer that a frame had, in the last of the words that the kernel neither writes nor reads (sigcontext::reserved1).
u64& own_restorer(SignalFrame& frame) { return frame.reserved[kWordOfRestorer]; }

bool has_known_bytes(u64 restorer) {
  constexpr u32 kBytes = sizeof shared::kSignalReturn;
  u8 bytes[kBytes];
  if (Reader{true}.copy(bytes, restorer, kBytes) != kBytes) return false;
  for (u32 i = 0; i < kBytes; ++i)
    if (bytes[i] != shared::kSignalReturn[i]) return false;
  return true;
}

// No handler of SIGSEGV can have left it blocked (by longjmp), and the interrupted thread has not blocked it.
bool segv_is_open(const ProcessBlock& block, const SignalFrame& frame) {
  const bool handled = block.actions[static_cast<u32>(shared::AppSignal::segv)].handler > kSigIgn;
  return (frame.mask & signal_bit(kSigSegv)) == 0 && (!handled || block.segv_stays_open != 0);
}

// The reverse, for the frame of a handler that has returned. The word that was its return address, and the frame, are still
// there. SIGSEGV is open here, so they may be unmapped memory.
void hide_own_restorer(u64 context) {
  const Reader reader{true};
  u64 returned_to = 0, own = 0, unused = 0;
  if (!reader.load8(context, unused) || !reader.load8(context + offsetof(SignalFrame, mask), unused)) return;
  auto& frame = *reinterpret_cast<SignalFrame*>(context);
  if (!reader.load8(frame.sp - 8, returned_to) || returned_to != as_word(uprobe_visible_restorer)) return;
  if (!reader.load8(frame.sp + offsetof(SignalFrame, reserved) + 8 * kWordOfRestorer, own)) return;
  if (frame.ip == own || frame.ip == own + kNumberBytes) frame.ip += as_word(uprobe_visible_restorer) - own;
}

}  // namespace

bool returns_through_us(const ProcessBlock& block, u64 restorer) {
  if (restorer == as_word(uprobe_visible_restorer)) return true;
  const Point* point = find_point(block, restorer + kNumberBytes);
  return point != nullptr && point->state == static_cast<u32>(shared::PointState::armed);
}

// False without a known libc: Go's restorer has the same bytes, but its handlers keep nothing that matters in their frames, and
// other threads go on with the code that they interrupt. Under a shadow stack only the kernel's return address is valid.
bool can_lead_back(const ProcessBlock& block, u64 restorer) {
  return (block.flags & shared::kBlockLeadsBack) != 0 && block.tid_offset != 0 && shadow_stack() == 0 &&
         has_known_bytes(restorer) && !returns_through_us(block, restorer);
}

bool sees_return(const ProcessBlock& block, u64 restorer) {
  return returns_through_us(block, restorer) || can_lead_back(block, restorer);
}

// Not under a debugger: it would be shown the faults.
void lead_back(ProcessBlock& block, HandlerFrame& whole) {
  if (__atomic_load_n(&block.left, __ATOMIC_RELAXED) == shared::kLeft || !segv_is_open(block, whole.context)) return;
  if (!can_lead_back(block, whole.restorer)) return;
  own_restorer(whole.context) = whole.restorer;
  whole.restorer = as_word(uprobe_visible_restorer);
  if ((block.flags & shared::kBlockLedBack) == 0)
    __atomic_fetch_or(&block.flags, shared::kBlockLedBack, __ATOMIC_RELAXED);
}

bool has_come_back(u64 address) {
  return address == as_word(uprobe_visible_restorer) || address == as_word(uprobe_visible_syscall);
}

void show_own_restorer(SignalFrame& frame) {
  if (!has_come_back(frame.ip)) return;
  frame.ip += own_restorer(*reinterpret_cast<SignalFrame*>(frame.sp)) - as_word(uprobe_visible_restorer);
}

Point begin_return(SignalFrame& frame) {
  hide_own_restorer(frame.sp);
  frame.ip = as_word(uprobe_visible_syscall);
  set_call_number(frame, kSysRtSigreturn);
  Point point{};
  point.address = frame.ip;
  point.copy = as_word(uprobe_return_copy);
  point.role = static_cast<u32>(shared::PointRole::system_call);
  return point;
}

bool leave_return_copy(SignalFrame& frame) {
  if (frame.ip != as_word(uprobe_return_copy)) return false;
  frame.ip = as_word(uprobe_visible_syscall);
  return true;
}

}  // namespace uprobe::agent
