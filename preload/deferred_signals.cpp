// SPDX-License-Identifier: MIT
// Deferred signals: SIGTRAP, SIGSEGV and SIGBUS that were sent while the application blocks them. The kernel would keep them
// pending, but the agent never lets it block them. So the agent keeps them, and they arrive where the kernel would deliver
// them: when the program unblocks them, waits for them, or waits with another mask.
#include "preload/deferred_signals.h"

#include "preload/handler_entry.h"
#include "preload/system_call.h"
#include "preload/thread.h"
#include "preload/virtual_mask.h"

namespace uprobe::agent {
namespace {

using shared::DeferredSignal;

enum State : u32 { kFree, kWriting, kThere };
constexpr i32 kSiTkill = -6;  // sent to one thread (tgkill, raise)

bool is_there(const DeferredSignal& held) { return __atomic_load_n(&held.state, __ATOMIC_ACQUIRE) == kThere; }

bool is_for(const DeferredSignal& held, u64 thread) { return held.thread == 0 || held.thread == thread; }

// No process may send a thread a siginfo of the kernel's (rt_tgsigqueueinfo(2)): it gets this one, and takes the deferred
// signal.
constexpr i32 kSiQueue = -1;
u64 nudge_value(const ProcessBlock& block) { return ~as_word(&block); }

SignalInfo make_nudge(const ProcessBlock& block, i32 signal) {
  SignalInfo info{};
  info.signal = signal;
  info.code = kSiQueue;
  const u64 value = nudge_value(block);
  __builtin_memcpy(info.rest, &value, sizeof value);  // si_value
  return info;
}

// A signal of the process goes to a thread that waits for it or does not block it, if there is one. rt_tgsigqueueinfo: not
// under a filter. Entries of ended threads lead to no thread, or to none of this process.
void nudge_other_thread(ProcessBlock& block, i32 signal) {
  if ((block.flags & shared::kBlockFiltered) != 0 || block.tid_offset == 0) return;
  const u64 own = thread_pointer(), bit = signal_bit(signal);
  const u64 pid = static_cast<u64>(system_call(kSysGetpid)), tid = static_cast<u64>(system_call(kSysGettid));
  const SignalInfo nudge = make_nudge(block, signal);
  const Reader reader{true};
  for (const shared::ThreadEntry& entry : threads_of(block)) {
    u64 other = 0;
    if (entry.thread <= 1 || entry.thread == own || ((entry.waits & bit) == 0 && (entry.blocked & bit) != 0)) continue;
    if (!reader.load8(entry.thread + static_cast<u64>(i64{block.tid_offset}), other)) continue;
    other = static_cast<u32>(other);
    if (other == 0 || other == tid) continue;
    if (system_call(kSysRtTgsigqueueinfo, pid, other, static_cast<u64>(signal), as_word(&nudge)) == 0) return;
  }
}

// Below 32 a signal that is pending already is not queued a second time (signal(7)).
bool is_deferred(const ProcessBlock& block, u32 signal, u64 thread) {
  for (const DeferredSignal& held : block.held)
    if (is_there(held) && held.signal == signal && held.thread == thread) return true;
  return false;
}

// A signalfd reads the kernel's pending signals, which do not include deferred ones; and a thread that has one pending there
// cannot go on over breakpoints. The tool reports that.
void count_unread(const ProcessBlock& block, u32 signal) {
  AreaHeader* area = session_area(block, 0);
  const u64 named = __atomic_load_n(&block.by_descriptor, __ATOMIC_RELAXED);
  if (area != nullptr && (named & signal_bit(static_cast<i32>(signal))) != 0) count(live_of(area).unread_signals);
}

}  // namespace

bool hold(ProcessBlock& block, const SignalInfo& info) {
  const u64 thread = info.code == kSiTkill ? thread_pointer() : 0;
  const u32 signal = static_cast<u32>(info.signal);
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), true);
  if (entry == nullptr) return false;
  if (is_deferred(block, signal, thread)) return true;
  for (DeferredSignal& held : block.held) {
    u32 expected = kFree;
    if (!__atomic_compare_exchange_n(&held.state, &expected, kWriting, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
      continue;
    held.signal = signal;
    held.thread = thread;
    copy_words(held.info, &info, sizeof held.info);
    count_unread(block, signal);
    __atomic_fetch_add(&block.deferred_count, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&held.state, kThere, __ATOMIC_RELEASE);
    __atomic_store_n(&entry->attention, 1, __ATOMIC_RELEASE);
    if (thread == 0) nudge_other_thread(block, info.signal);
    return true;
  }
  return false;
}

bool is_nudge(const ProcessBlock& block, const SignalInfo& info) {
  u64 value = 0;
  __builtin_memcpy(&value, info.rest, sizeof value);
  return info.code == kSiQueue && value == nudge_value(block);
}

u64 deferred_signals(const ProcessBlock& block) {
  u64 set = 0;
  if (__atomic_load_n(&block.deferred_count, __ATOMIC_ACQUIRE) == 0) return set;
  for (const DeferredSignal& held : block.held)
    if (is_there(held) && is_for(held, thread_pointer())) set |= signal_bit(static_cast<i32>(held.signal));
  return set;
}

void forget_deferred(ProcessBlock& block) {
  for (DeferredSignal& held : block.held)
    if (held.state != kFree) held.state = kFree;
  if (block.deferred_count != 0) block.deferred_count = 0;
}

// With their siginfo; the kernel keeps them while they are blocked. Sent to the process, or to one of its threads.
void send_deferred(ProcessBlock& block, u64 thread) {
  const u64 pid = static_cast<u64>(system_call(kSysGetpid));
  for (DeferredSignal& held : block.held) {
    if (!is_there(held) || held.thread != thread) continue;
    if (thread == 0)
      system_call(kSysRtSigqueueinfo, pid, held.signal, as_word(held.info));
    else
      queue_to_self(held.signal, held.info);
    held.state = kFree;
    __atomic_fetch_sub(&block.deferred_count, 1, __ATOMIC_RELAXED);
  }
}

bool take_deferred(ProcessBlock& block, u64 set, SignalInfo& info) {
  const u64 thread = thread_pointer();
  const u64 ready = deferred_signals(block) & set;
  if (ready == 0) return false;
  const u32 lowest = static_cast<u32>(__builtin_ctzll(ready)) + 1;
  for (DeferredSignal& held : block.held) {
    u32 expected = kThere;
    if (!is_there(held) || held.signal != lowest || !is_for(held, thread)) continue;
    if (!__atomic_compare_exchange_n(&held.state, &expected, kWriting, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
      continue;
    copy_words(&info, held.info, sizeof info);
    __atomic_fetch_sub(&block.deferred_count, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&held.state, kFree, __ATOMIC_RELEASE);
    return true;
  }
  return false;
}

bool release_deferred(ProcessBlock& block, u64 blocked, u64 mask) {
  bool runs = false;
  SignalInfo info;
  while (take_deferred(block, shared::kOurSignals & ~blocked, info)) {
    const u64 restorer = restorer_of(block, info.signal);
    const AppHandler handler = handler_to_call(block, info.signal);
    if (handler.address <= kSigIgn) {
      default_action(info, handler.address);
      continue;
    }
    block_mask_of(block, info.signal);
    runs = defer(block, handler, restorer, mask, info) || runs;
  }
  return runs;
}

}  // namespace uprobe::agent
