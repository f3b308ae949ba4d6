// SPDX-License-Identifier: MIT
// Handing signals to the application's handlers: at once, with the kernel's frame, or when the thread leaves the agent.
//
// A signal that comes while its thread is in the agent would show its handler a place that the program does not have, and
// a handler that leaves by siglongjmp would leave the hit half done. So the agent defers it: it keeps the siginfo, the thread
// goes on with the mask that the kernel has set for the handler, and at the end of the hit the frame of the breakpoint
// itself becomes the frame of the handler. No system call and no lock: a list belongs to one thread, and a signal that
// interrupts the thread has ended before the thread goes on.
#include "preload/handler_entry.h"

#include "arch/entry/cpu.h"
#include "engine/shared/agent_header.h"
#include "preload/copies.h"
#include "preload/jump_stacks.h"
#include "preload/returns.h"
#include "preload/stacks.h"
#include "preload/steps.h"
#include "preload/system_call.h"
#include "preload/thread.h"
#include "preload/trampolines.h"
#include "preload/virtual_mask.h"

namespace uprobe::agent {
namespace {

using shared::PendingSignal;

constexpr u32 kNothingPending = 0;

PendingSignal* claim(ProcessBlock& block) {
  for (PendingSignal& signal : block.pending) {
    u32 expected = 0;
    if (__atomic_compare_exchange_n(&signal.taken, &expected, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
      return &signal;
  }
  return nullptr;
}

void push(ProcessBlock& block, shared::ThreadEntry& entry, PendingSignal& signal) {
  const u32 index = static_cast<u32>(&signal - block.pending) + 1;
  u32 newest = __atomic_load_n(&entry.pending, __ATOMIC_RELAXED);
  do signal.next = newest;
  while (!__atomic_compare_exchange_n(&entry.pending, &newest, index, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
  __atomic_store_n(&entry.attention, 1, __ATOMIC_RELEASE);
}

// The oldest is the one that found the fewest signals blocked, since each has blocked more for the next. It is not always the
// last in the list: of two that the kernel delivers at once the later one runs first, and comes here first.
u32 oldest_of(const ProcessBlock& block, u32 newest) {
  u32 oldest = newest;
  for (u32 index = newest; index != 0; index = block.pending[index - 1].next)
    if ((block.pending[index - 1].mask & ~block.pending[oldest - 1].mask) == 0) oldest = index;
  return oldest;
}

// Takes the oldest off the list; null: it is empty. New ones may come at any moment, at the head only.
PendingSignal* take_oldest(ProcessBlock& block, shared::ThreadEntry& entry) {
  for (;;) {
    u32 newest = __atomic_load_n(&entry.pending, __ATOMIC_ACQUIRE);
    if (newest == 0) return nullptr;
    PendingSignal* oldest = &block.pending[oldest_of(block, newest) - 1];
    if (oldest != &block.pending[newest - 1]) {
      PendingSignal* newer = &block.pending[newest - 1];
      while (&block.pending[newer->next - 1] != oldest) newer = &block.pending[newer->next - 1];
      newer->next = oldest->next;
      return oldest;
    }
    if (__atomic_compare_exchange_n(&entry.pending, &newest, oldest->next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return oldest;
  }
}

// A frame with this mask is left without putting it in force: the deferred handlers do that in the end.
void remember_mask(ProcessBlock& block, const shared::ThreadEntry& entry, u64 mask) {
  const u32 newest = __atomic_load_n(&entry.pending, __ATOMIC_ACQUIRE);
  if (newest != 0) block.pending[oldest_of(block, newest) - 1].mask &= mask;
}

void free_place(PendingSignal& signal) { __atomic_store_n(&signal.taken, 0, __ATOMIC_RELEASE); }

// A list has taken places only: where the pool has none, all lists are empty, and a child need not touch the table of threads, whose
// half a megabyte it would get page by page.
bool has_taken_place(const ProcessBlock& block) {
  for (const PendingSignal& signal : block.pending)
    if (signal.taken != 0) return true;
  return false;
}

// The frame does not fit on the alternate stack that the application has made: it dies as it would have (setup_rt_frame
// fails, force_sigsegv). System calls: of a process about to die.
[[noreturn]] void kill_by_segv() {
  SignalInfo info{};
  info.signal = kSigSegv;
  info.code = kSiKernel;
  const shared::KernelSigaction fallback{kSigDfl, 0, 0, 0};
  system_call(kSysRtSigaction, kSigSegv, as_word(&fallback), 0, 8);
  const u64 none = 0;
  system_call(kSysRtSigprocmask, kSetMask, as_word(&none), 0, 8);
  for (;;) queue_to_self(kSigSegv, &info);
}

}  // namespace

u64 pending_word(ProcessBlock& block) {
  const shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), true);
  return as_word(entry != nullptr ? &entry->pending : &kNothingPending);
}

u64 blocked_by_program(ProcessBlock& block, const SignalFrame& frame) {
  u64 mask = frame.mask;
  const shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), false);
  const u32 newest = entry != nullptr ? __atomic_load_n(&entry->pending, __ATOMIC_ACQUIRE) : 0;
  for (u32 index = newest; index != 0; index = block.pending[index - 1].next) mask &= block.pending[index - 1].mask;
  return mask & ~shared::kOurSignals;
}

long interruptible_call(ProcessBlock& block, long number, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f) {
  const u32 no_attention = 0;
  const shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), false);
  return uprobe_interruptible_call(entry != nullptr ? &entry->attention : &no_attention, number, a, b, c, d, e, f);
}

bool defer(ProcessBlock& block, const AppHandler& handler, u64 restorer, u64 mask, const SignalInfo& info) {
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), true);
  PendingSignal* place = entry != nullptr ? claim(block) : nullptr;
  if (place == nullptr) return false;
  place->handler = handler.address;
  place->flags = handler.flags;
  place->restorer = restorer;
  place->mask = mask;
  copy_words(place->info, &info, sizeof place->info);
  push(block, *entry, *place);
  return true;
}

bool can_resume(const SignalFrame& frame) {
  return (frame.stack_flags & kStackAutodisarm) == 0 && frame.fpstate != 0 && shadow_stack() == 0;
}

// Under a shadow stack only rt_sigreturn can go back, and that would put the old mask in force.
bool defer(ProcessBlock& block, const AppHandler& handler, const SignalInfo& info, SignalFrame& frame) {
  if (frame.fpstate == 0 || shadow_stack() != 0) return false;
  if (!defer(block, handler, frame_around(frame).restorer, frame.mask, info)) return false;
  look_again(frame);
  return true;
}

Exit enter(ProcessBlock& block, const AppHandler& handler, SignalFrame& frame) {
  undo_sigreturn(block, frame);
  forget_step(block, frame);
  take_jump_stack(block, frame);
  lead_back(block, frame_around(frame));
  frame.uc_link = pending_word(block);
  SignalFrame* placed = on_its_stack(block, frame, handler.flags);
  if (placed == nullptr) kill_by_segv();
  HandlerFrame& whole = frame_around(*placed);
  const bool shown = show_belief(block, whole.info.signal, *placed, whole.restorer);
  expect_after(block, *placed, shown);
  if (shown) show_own_restorer(*placed);
  return {handler.address, as_word(&whole)};
}

void send_pending_again(ProcessBlock& block) {
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), false);
  while (entry != nullptr && __atomic_load_n(&entry->pending, __ATOMIC_ACQUIRE) != 0) {
    const u64 others = ~shared::kOurSignals;
    system_call(kSysRtSigprocmask, kSetMask, as_word(&others), 0, 8);
    u64 mask = others;
    while (PendingSignal* signal = take_oldest(block, *entry)) {
      i32 number = 0;
      __builtin_memcpy(&number, signal->info, sizeof number);
      queue_to_self(static_cast<u64>(number), signal->info);
      mask &= signal->mask;  // the oldest's: the mask before all of them
      free_place(*signal);
    }
    uprobe_open_call(kSysRtSigprocmask, kSetMask, as_word(&mask), 0, 8);
  }
}

void forget_other_threads(ProcessBlock& block) {
  expect_nothing_of_others(block);
  const shared::ThreadEntry* own = thread_entry(block, thread_pointer(), false);
  if (own != nullptr && own->pending != 0) return;  // its own pending signals are in the pool
  if (!has_taken_place(block)) return;
  for (shared::ThreadEntry& entry : threads_of(block))
    if (entry.pending != 0) entry.pending = 0;
  for (PendingSignal& signal : block.pending)
    if (signal.taken != 0) free_place(signal);
}

extern "C" {

// Delivers the oldest deferred signal of a thread that is about to leave the agent for the state in `frame`. That frame, built
// by the kernel for the agent's own signal, becomes the frame of its handler.
__attribute__((visibility("hidden"), used)) Exit uprobe_deliver(SignalFrame* frame) {
  ProcessBlock& block = *uprobe_block;
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), true);
  leave_for_handler(block, *frame, true);
  if (entry != nullptr && step(block, *frame)) {
    remember_mask(block, *entry, frame->mask);
    return {kResumeNested, 0};
  }
  PendingSignal* taken = entry != nullptr ? take_oldest(block, *entry) : nullptr;
  if (taken == nullptr) return {0, 0};
  PendingSignal& signal = *taken;
  HandlerFrame& whole = frame_around(*frame);
  copy_words(&whole.info, signal.info, sizeof whole.info);
  whole.restorer = signal.restorer;
  frame->mask = signal.mask;
  move_to_original(block, *frame, Arrival::signal);
  const AppHandler handler{signal.handler, signal.flags};
  free_place(signal);
  return enter(block, handler, *frame);
}

// The oldest deferred signal interrupts a handler at its first instruction, as when the kernel delivers two at once: a frame
// below, without extended state, which is initial there. `fresh` is room for it.
__attribute__((visibility("hidden"), used)) Exit uprobe_stack_signal(HandlerFrame* fresh, HandlerFrame* below,
                                                                     u64 interrupted, const u32* pending) {
  ProcessBlock& block = *uprobe_block;
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), true);
  PendingSignal* taken = entry != nullptr ? take_oldest(block, *entry) : nullptr;
  if (taken == nullptr) {
    below->context.uc_link = as_word(pending);
    return {interrupted, as_word(below)};
  }
  PendingSignal& signal = *taken;
  fresh = place_above(block, *below, fresh, signal.flags);
  if (fresh == nullptr) kill_by_segv();
  SignalFrame& context = fresh->context;
  copy_words(&context, &below->context, sizeof context);
  context.uc_link = as_word(pending);
  interrupt_handler(context, *below, interrupted);
  context.mask = signal.mask;
  fresh->restorer = signal.restorer;
  copy_words(&fresh->info, signal.info, sizeof fresh->info);
  const u64 handler = signal.handler;
  free_place(signal);
  lead_back(block, *fresh);
  show_belief(block, fresh->info.signal, context, fresh->restorer);
  return {handler, as_word(fresh)};
}

}  // extern "C"

}  // namespace uprobe::agent
