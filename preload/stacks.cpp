// SPDX-License-Identifier: MIT
// Alternate signal stacks. A hit needs a signal frame (3-4 KiB with AVX-512) and a kilobyte for the agent. The program's
// own stack, or an alternate stack as small as the program could make it, may not have that much; and an alternate
// stack may hold live data (coroutines have been made that way). So the agent gives each thread a stack of its own as the
// kernel's alternate stack, and remembers here the one that the application has set.
//
// The rules of sigaltstack and of where a frame goes are the kernel's: kernel/signal.c (do_sigaltstack, on_sig_stack),
// get_sigframe of its signal.c.
#include "preload/stacks.h"

#include "arch/entry/extended_state.h"
#include "engine/shared/agent_header.h"
#include "preload/copies.h"
#include "preload/returns.h"
#include "preload/system_call.h"
#include "preload/thread.h"
#include "preload/virtual_mask.h"

namespace uprobe::agent {
namespace {

using shared::ThreadEntry;

// All kinds of signals may come at once, each with a frame of its own. Most threads ever touch a page or two.
constexpr u64 kStackBytes = 1024 * 1024, kGuardBytes = 4096;
constexpr u64 kUses = 4095;      // the bits of ThreadEntry::own_stack that count its threads
constexpr u64 kSmallest = 2048;  // MINSIGSTKSZ
constexpr u32 kDisable = 2, kOnstack = 1, kFlagBits = 1u << 31;  // SS_DISABLE, SS_ONSTACK, SS_AUTODISARM
constexpr long kPermission = -1, kNoMemory = -12, kFault = -14, kInvalid = -22;
constexpr u32 kLooks = 16;  // entries examined for the stack of an ended thread
struct StackT {
  u64 base;
  u32 flags;
  u32 pad;
  u64 size;
};

bool is_on(u64 base, u64 size, u64 sp) { return sp > base && sp - base <= size; }

ThreadEntry* own_entry(ProcessBlock& block) { return thread_entry(block, thread_pointer(), false); }

bool is_on_apps(const ThreadEntry& entry, u64 sp) {
  return (entry.app_stack_flags & kFlagBits) == 0 && is_on(entry.app_stack, entry.app_stack_size, sp);
}

// A stack with SS_AUTODISARM is not set while a handler runs on it. If the agent does not see the handler's end it could not
// set it again: then the stack stays set, and counts as in use.
bool is_in_use(const ProcessBlock& block, const ThreadEntry& entry, u64 sp, u64 restorer) {
  if (returns_through_us(block, restorer)) return is_on_apps(entry, sp);
  return is_on(entry.app_stack, entry.app_stack_size, sp);
}

// The id in the control block does not tell: musl clears it before a thread has run its last instruction.
bool has_ended(const ThreadEntry& entry, u64 pid) {
  constexpr long kNoSuchThread = -3;
  return system_call(kSysTgkill, pid, entry.id, 0) == kNoSuchThread;
}

u64 stack_of(const ThreadEntry& entry) { return entry.own_stack & ~kUses; }

bool has_own_stack(const ThreadEntry& entry, const SignalFrame& hit) {
  return entry.own_stack != 0 && hit.stack_base == stack_of(entry);
}

// The stack of an ended thread; 0: none found in a few looks. If a thread has begun with the same control block since, the word
// has changed (begin_thread).
u64 inherit_stack(ProcessBlock& block) {
  if (block.tid_offset == 0) return 0;
  const u64 pid = static_cast<u64>(system_call(kSysGetpid)), own = thread_pointer();
  for (u32 looks = 0; looks < kLooks; ++looks) {
    const u32 place = __atomic_fetch_add(&block.stack_cursor, 1, __ATOMIC_RELAXED) % shared::kThreadEntries;
    ThreadEntry& entry = threads_of(block).first[place];
    u64 stack = __atomic_load_n(&entry.own_stack, __ATOMIC_RELAXED);
    if (stack == 0 || entry.thread == own || entry.thread <= 1 || !has_ended(entry, pid)) continue;
    if (__atomic_compare_exchange_n(&entry.own_stack, &stack, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return stack & ~kUses;
  }
  return 0;
}

long set_stack(ThreadEntry& entry, const StackT& wanted, u64 sp) {
  const u32 mode = wanted.flags & ~kFlagBits;
  if (is_on_apps(entry, sp)) return kPermission;
  if (mode != kDisable && mode != kOnstack && mode != 0) return kInvalid;
  if (mode != kDisable && wanted.size < kSmallest) return kNoMemory;
  entry.app_stack = mode == kDisable ? 0 : wanted.base;
  entry.app_stack_size = mode == kDisable ? 0 : wanted.size;
  entry.app_stack_flags = wanted.flags;
  return 0;
}

// The stack as sigaltstack reports it.
StackT shown_stack(const ThreadEntry& entry, u64 sp) {
  const u32 mode = entry.app_stack_size == 0 ? kDisable : is_on_apps(entry, sp) ? kOnstack : 0;
  return {entry.app_stack, mode | (entry.app_stack_flags & kFlagBits), 0, entry.app_stack_size};
}

// `before` is the kernel's: none, or one that the application has set by a call that the agent did not see.
bool set_again(ThreadEntry& entry, const StackT& before) {
  const StackT ours{stack_of(entry), 0, 0, kStackBytes};
  if (system_call(kSysSigaltstack, as_word(&ours)) != 0) return false;
  if (before.size == 0) return true;
  entry.app_stack = before.base;
  entry.app_stack_size = before.size;
  entry.app_stack_flags = before.flags;
  return true;
}

}  // namespace

// Private and writable memory counts for RLIMIT_DATA, which belongs to the program's own threads and heap; a stack does not (Linux:
// is_data_mapping, is_stack_mapping). MAP_GROWSDOWN makes it one. It must never grow, or a wild pointer of the program would find
// memory: the page before it may not be accessed.
u64 new_stack(u64 bytes) {
  constexpr u64 kNone = 0, kReadWrite = 3, kPrivateAnonymousNoreserve = 0x4022, kStackInPlace = 0x110;
  const long room = system_call(kSysMmap, 0, kGuardBytes + bytes, kNone, kPrivateAnonymousNoreserve, ~u64{0}, 0);
  if (room <= 0) return 0;
  const long at = system_call(kSysMmap, static_cast<u64>(room) + kGuardBytes, bytes, kReadWrite,
                              kPrivateAnonymousNoreserve | kStackInPlace, ~u64{0}, 0);
  if (at > 0) return static_cast<u64>(at);
  system_call(kSysMunmap, static_cast<u64>(room), kGuardBytes + bytes);
  return 0;
}

void give_stack(ProcessBlock& block, const SignalFrame& hit) {
  if ((block.flags & shared::kBlockFiltered) != 0 || borrows_memory(block)) return;
  ThreadEntry* entry = thread_entry(block, thread_pointer(), true);
  if (entry == nullptr || entry->thread <= 1) return;
  const u32 id = thread_id(block, true);
  const bool has_it = has_own_stack(*entry, hit);
  if (has_it) entry->id = id;  // or a forked child's
  StackT before{};
  if (has_it || system_call(kSysSigaltstack, 0, as_word(&before)) != 0 || (before.flags & kOnstack) != 0) return;
  // A new thread with an old control block; or a handler has returned that began before this stack was given.
  if (entry->own_stack != 0 && (entry->id != id || !set_again(*entry, before))) begin_thread(block, hit);
  entry->id = id;
  if (entry->own_stack != 0) return;
  u64 stack = inherit_stack(block);
  if (stack == 0) stack = new_stack(kStackBytes);
  const StackT ours{stack, 0, 0, kStackBytes};
  if (stack == 0 || system_call(kSysSigaltstack, as_word(&ours)) != 0) return;
  entry->app_stack = before.base;
  entry->app_stack_size = before.size;
  entry->app_stack_flags = before.size != 0 ? before.flags : 0;  // of a program that has just begun
  entry->own_stack = stack;
}

// A thread on its own alternate stack may be given another: on_its_stack() sees by its stack pointer where it is.
void take_stack_over(ProcessBlock& block) {
  if ((block.flags & shared::kBlockFiltered) != 0 || borrows_memory(block)) return;
  ThreadEntry* entry = thread_entry(block, thread_pointer(), true);
  StackT before{};
  if (entry == nullptr || entry->thread <= 1 || system_call(kSysSigaltstack, 0, as_word(&before)) != 0) return;
  entry->id = thread_id(block, true);
  if (entry->own_stack != 0 && before.base == stack_of(*entry)) return;  // of a tool that was killed
  u64 stack = stack_of(*entry);
  if (stack == 0) stack = inherit_stack(block);
  if (stack == 0) stack = new_stack(kStackBytes);
  const StackT ours{stack, 0, 0, kStackBytes};
  if (stack == 0 || system_call(kSysSigaltstack, as_word(&ours)) != 0) return;
  entry->own_stack = stack;
  entry->app_stack = before.base;
  entry->app_stack_size = before.size;
  entry->app_stack_flags = before.size != 0 ? before.flags & ~kOnstack : kDisable;
}

// Set as it is now, regardless of the thread's stack pointer: the kernel judges by the current one.
void give_stack_back(ProcessBlock& block, u64 sp) {
  const ThreadEntry* entry = own_entry(block);
  StackT now{};
  if (entry == nullptr || entry->own_stack == 0 || system_call(kSysSigaltstack, 0, as_word(&now)) != 0) return;
  if (now.base != stack_of(*entry)) return;
  StackT shown = shown_stack(*entry, sp);
  shown.flags &= ~kOnstack;
  system_call(kSysSigaltstack, as_word(&shown));
}

void begin_thread(ProcessBlock& block, const SignalFrame& hit) {
  ThreadEntry* entry = own_entry(block);
  if (entry == nullptr || has_own_stack(*entry, hit)) return;
  expect_nothing(block);
  entry->blocked = block.start_blocked;
  entry->waits = entry->cleared = entry->attention = entry->steps = 0;
  entry->app_stack = entry->app_stack_size = 0;
  entry->app_stack_flags = kDisable;
  u64 stack = __atomic_load_n(&entry->own_stack, __ATOMIC_RELAXED);
  const u64 used = (stack & ~kUses) | ((stack + 1) & kUses);
  // The stack went to another thread just now: this one gets a new one later.
  if (stack == 0 ||
      !__atomic_compare_exchange_n(&entry->own_stack, &stack, used, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    return;
  const StackT ours{stack_of(*entry), 0, 0, kStackBytes};
  if ((block.flags & shared::kBlockFiltered) != 0 || system_call(kSysSigaltstack, as_word(&ours)) != 0)
    entry->own_stack = 0;
}

SignalFrame* on_its_stack(ProcessBlock& block, SignalFrame& context, u64 flags) {
  const ThreadEntry* entry = own_entry(block);
  const bool ours = entry != nullptr && entry->own_stack != 0;
  const bool wants = (flags & shared::kSaOnstack) != 0;
  const u64 from = as_word(&context);
  const bool elsewhere = !is_on(context.stack_base, context.stack_size, from);
  const bool nested = ours && is_in_use(block, *entry, context.sp, frame_around(context).restorer);
  const bool entering = ours && wants && entry->app_stack_size != 0 && !nested;
  if (context.fpstate == 0 || (elsewhere && (!entering || entry->id != thread_id(block, true)))) return &context;
  if (!ours && (wants || is_on(context.stack_base, context.stack_size, context.sp))) return &context;
  const u64 top = entering ? entry->app_stack + entry->app_stack_size : context.sp - shared::kRedZone;
  const u64 bytes = extended_bytes(context.fpstate);
  const u64 fpstate = (top - bytes) & ~(kExtendedAlignment - 1);
  const u64 place = ((fpstate - sizeof(HandlerFrame)) & ~u64{15}) - 8;
  if ((entering || nested) && !is_on(entry->app_stack, entry->app_stack_size, place)) return nullptr;
  copy_words(reinterpret_cast<void*>(fpstate), reinterpret_cast<const void*>(context.fpstate), bytes);
  copy_words(reinterpret_cast<void*>(place), &frame_around(context), sizeof(HandlerFrame));
  SignalFrame& moved = reinterpret_cast<HandlerFrame*>(place)->context;
  moved.fpstate = fpstate;
  return &moved;
}

HandlerFrame* place_above(ProcessBlock& block, const HandlerFrame& below, HandlerFrame* fresh, u64 flags) {
  const ThreadEntry* entry = own_entry(block);
  if (entry == nullptr || entry->own_stack == 0 || entry->app_stack_size == 0) return fresh;
  const bool nested = is_in_use(block, *entry, as_word(&below), below.restorer);
  if ((flags & shared::kSaOnstack) != 0 && !nested)
    fresh = reinterpret_cast<HandlerFrame*>(
        ((entry->app_stack + entry->app_stack_size - sizeof(HandlerFrame)) & ~u64{15}) - 8);
  else if (!nested)
    return fresh;
  return is_on(entry->app_stack, entry->app_stack_size, as_word(fresh)) ? fresh : nullptr;
}

// Before a new thread has come to an internal point, the entry may still be that of an earlier thread.
void show_stack(ProcessBlock& block, SignalFrame& frame) {
  ThreadEntry* entry = own_entry(block);
  if (entry == nullptr || entry->own_stack == 0 || entry->id != thread_id(block, true)) return;
  const StackT shown = shown_stack(*entry, frame.sp);
  frame.stack_base = shown.base;
  frame.stack_flags = static_cast<i32>(entry->app_stack_flags);  // as they were set (__save_altstack)
  frame.stack_size = shown.size;
  // SS_AUTODISARM: there is none while a handler runs on it.
  const bool disarms = (shown.flags & kFlagBits) != 0 && is_on(shown.base, shown.size, as_word(&frame));
  if (disarms) entry->app_stack = entry->app_stack_size = entry->app_stack_flags = 0;
}

// Like restore_altstack: sets the stack in the frame, reports no errors. A frame with the agent's stack was never shown
// another.
void take_stack(ProcessBlock& block, SignalFrame& frame) {
  ThreadEntry* entry = own_entry(block);
  if (entry == nullptr || entry->own_stack == 0 || frame.stack_base == stack_of(*entry)) return;
  set_stack(*entry, {frame.stack_base, static_cast<u32>(frame.stack_flags), 0, frame.stack_size}, frame.sp);
  frame.stack_base = stack_of(*entry);
  frame.stack_flags = 0;
  frame.stack_size = kStackBytes;
}

bool app_sigaltstack(ProcessBlock& block, u64 wanted, u64 old, u64 sp, long& result) {
  ThreadEntry* entry = own_entry(block);
  if (entry == nullptr || entry->own_stack == 0) return false;
  const Reader reader{true};
  StackT asked{};
  u64 unused = 0;
  const StackT before = shown_stack(*entry, sp);
  const bool readable = wanted == 0 || reader.copy(reinterpret_cast<u8*>(&asked), wanted, sizeof asked) == sizeof asked;
  result = !readable ? kFault : 0;
  if (result == 0 && wanted != 0 && !borrows_memory(block)) result = set_stack(*entry, asked, sp);
  if (result != 0 || old == 0) return true;
  if (!reader.load8(old, unused) || !reader.load8(old + 16, unused)) {
    result = kFault;
    return true;
  }
  *reinterpret_cast<StackT*>(old) = before;
  return true;
}

}  // namespace uprobe::agent
