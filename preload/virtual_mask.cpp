// SPDX-License-Identifier: MIT
// The application's signal dispositions and virtual mask. Faults stay with the agent, and SIGTRAP, SIGSEGV and SIGBUS stay
// deliverable, or a breakpoint would kill; the agent remembers the application's settings, shows them when it asks, and uses
// them when it passes one of its signals on.
//
// The calls made here are the application's own rt_sigaction and rt_sigprocmask, with changed arguments: a filter that
// lets them pass lets these pass.
#include "preload/virtual_mask.h"

#include "engine/shared/agent_header.h"
#include "preload/agent.h"
#include "preload/copies.h"
#include "preload/returns.h"
#include "preload/stacks.h"
#include "preload/system_call.h"
#include "preload/thread.h"

namespace uprobe::agent {
namespace {

using shared::AppAction;
using shared::KernelSigaction;
using shared::kOurSignals;

constexpr u64 kSetBytes = 8;  // the kernel's sigset_t
constexpr u64 kSaResethand = 0x80000000;
// Additional flags of the application's handlers: without SA_SIGINFO the kernel writes no siginfo, and the agent's code before
// them needs a stack.
constexpr u64 kForced = shared::kSaSiginfo | shared::kSaOnstack;
constexpr u64 kKnownFlags = 0xdc000807;  // the kernel's part of sa_flags (UAPI_SA_FLAGS, SA_RESTORER)
constexpr u64 kNeverBlocked = 1ull << (9 - 1) | 1ull << (19 - 1);  // SIGKILL, SIGSTOP
constexpr long kFault = -14;                                       // EFAULT
constexpr u64 kSignals = 64;

void believe_blocked(ProcessBlock& block, u64 blocked) {
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), blocked != block.start_blocked);
  if (entry != nullptr) entry->blocked = blocked;
}

u8 pack(u64 set) {
  return static_cast<u8>((set >> (kSigTrap - 1) & 1) | (set >> (kSigSegv - 1) & 1) << 1 |
                         (set >> (kSigBus - 1) & 1) << 2);
}
u64 unpack(u8 bits) {
  return u64{bits & 1u} << (kSigTrap - 1) | u64{bits >> 1 & 1u} << (kSigSegv - 1) |
         u64{bits >> 2 & 1u} << (kSigBus - 1);
}

AppAction* our_action(ProcessBlock& block, u64 signal) {
  for (u32 i = 0; i < shared::kAppSignals; ++i)
    if (shared::kFaultSignalNumbers[i] == signal) return &block.actions[i];
  return nullptr;
}

// Whether a load of a hit may raise it. A fault while it is blocked kills; where its handlers' returns are not seen it stays blocked in
// them, since the virtual mask would never be opened again.
bool is_load_fault(u64 signal) { return signal == kSigSegv || signal == kSigBus; }

// The kernel's action for one of kOurSignals. SIGTRAP: always the agent's. A fault: the application's flags, mask and
// restorer with the agent's entry, so that its handler can be entered as the kernel entered the agent.
KernelSigaction installed_for(const ProcessBlock& block, u64 signal, const AppAction& app) {
  const u64 entry = as_word(signal == kSigTrap ? uprobe_trap_entry : uprobe_fault_entry);
  // A fault without a handler has the agent's action as well, and kills when it is passed on.
  const u64 restart = app.handler > kSigIgn ? ~shared::kSaRestart | app.flags : ~u64{0};
  if (signal == kSigTrap || app.handler <= kSigIgn)
    return {entry, shared::kAgentSaFlags & restart, as_word(uprobe_restorer), 0};
  // Its handler may hit a probe whose loads fault, and may return by a fault.
  const u64 open = is_load_fault(signal) && sees_return(block, app.restorer) ? shared::kSaNodefer : 0;
  return {as_word(uprobe_app_fault_entry), (app.flags & ~kSaResethand) | kForced | open, app.restorer,
          app.mask & ~kOurSignals};
}

// Whether the process has dispositions of its own, and those of the block are another process's. (A child in another's memory whose
// begin was not seen has no use for handlers before it calls execve.)
bool is_for_another(ProcessBlock& block, const KernelSigaction& wanted) {
  return borrows_memory(block) || (wanted.handler <= kSigIgn && is_in_anothers_memory(block));
}

// rt_sigaction(signal, wanted, null) for one of kOurSignals.
long our_sigaction(ProcessBlock& block, u64 signal, const KernelSigaction& wanted) {
  if (is_for_another(block, wanted)) return 0;
  const AppAction app{wanted.handler, wanted.flags & kKnownFlags, wanted.restorer, wanted.mask & ~kNeverBlocked};
  const KernelSigaction kernel = installed_for(block, signal, app);
  const long result = system_call(kSysRtSigaction, signal, as_word(&kernel), 0, kSetBytes);
  if (result == 0) *our_action(block, signal) = app;
  if (result == 0 && signal == kSigSegv) block.segv_stays_open = (kernel.flags & shared::kSaNodefer) != 0 ? 1 : 0;
  return result;
}

bool is_our_entry(u64 handler) {
  return handler == as_word(uprobe_trap_entry) || handler == as_word(uprobe_fault_entry) ||
         handler == as_word(uprobe_app_fault_entry) || handler == as_word(uprobe_signal_entry);
}

// Corrects the kernel's answer about a signal with the agent's entry to the application's setting.
void show_own_handler(const shared::OtherAction& known, u64 old) {
  auto& shown = *reinterpret_cast<KernelSigaction*>(old);
  const bool ours = shown.handler == as_word(uprobe_signal_entry);
  const bool was_ours = shown.handler == kSigDfl && (shown.flags & known.flags & kSaResethand) != 0;
  if (ours) shown.handler = known.handler;
  if (ours || was_ours) shown.flags = (shown.flags & ~kForced) | (known.flags & kForced);
}

// rt_sigaction for any other signal. The kernel keeps all but the handler, whose place the agent's entry takes. A handler stays
// known for ever: a signal may be on its way to it.
long other_sigaction(ProcessBlock& block, u64 signal, KernelSigaction* wanted, u64 old) {
  shared::OtherAction& known = block.others[signal];
  const shared::OtherAction before = known;
  const bool borrowed = wanted != nullptr ? is_for_another(block, *wanted) : borrows_memory(block);
  const u8 remembered = block.masked_in[signal];
  u8 named = 0;
  if (wanted != nullptr) {
    named = pack(wanted->mask);
    wanted->mask &= ~kOurSignals;
    if (wanted->handler > kSigIgn && !borrowed) {
      known = {wanted->handler, wanted->flags};
      wanted->handler = as_word(uprobe_signal_entry);
      wanted->flags |= kForced;
    }
  }
  const long result = system_call(kSysRtSigaction, signal, as_word(wanted), old, kSetBytes);
  if (result != 0 && result != kFault) known = before;
  if (result != 0 && result != kFault) return result;
  if (result == 0 && old != 0) {
    reinterpret_cast<KernelSigaction*>(old)->mask |= unpack(remembered);
    show_own_handler(before, old);
  }
  if (wanted != nullptr && !borrowed) block.masked_in[signal] = named;
  return result;
}

// The state before app_sigreturn: a signal may come before the call is made, and its handler must find everything
// as the kernel still has it. Kept in words of the frame that the kernel neither writes nor reads (sigcontext::reserved1).
struct Before {
  u64 mask, stack_base, stack_size, ip;  // in the frame
  u64 app_stack, app_stack_size;
  u32 stack_flags;
  u32 app_stack_flags;  // and the virtual mask of kOurSignals, whose bits are no flags
};
static_assert(sizeof(Before) <= sizeof(SignalFrame::reserved) - sizeof(u64));  // the last word belongs to returns.cpp

Before& before_of(SignalFrame& frame) { return *reinterpret_cast<Before*>(frame.reserved); }

void remember(ProcessBlock& block, SignalFrame& frame) {
  const shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), true);
  if (entry == nullptr) return;
  before_of(frame) = {frame.mask,
                      frame.stack_base,
                      frame.stack_size,
                      frame.ip,
                      entry->app_stack,
                      entry->app_stack_size,
                      static_cast<u32>(frame.stack_flags),
                      entry->app_stack_flags | static_cast<u32>(entry->blocked & kOurSignals)};
  frame.uc_link = as_word(entry);
}

// A child in its parent's memory that began without handlers has none of the agent's either.
bool began_without_handlers(ProcessBlock& block) {
  if (!borrows_memory(block)) return false;
  const shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), false);
  return entry != nullptr && entry->cleared != 0;
}

}  // namespace

// Without breakpoints the agent follows nothing any more: the kernel's mask counts.
u64 virtually_blocked(ProcessBlock& block) {
  if (__atomic_load_n(&block.left, __ATOMIC_RELAXED) == shared::kLeft) return 0;
  const shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), false);
  return entry != nullptr ? entry->blocked : block.start_blocked;
}

AppHandler handler_to_call(ProcessBlock& block, i32 signal) {
  AppAction* action = our_action(block, static_cast<u64>(signal));
  if (began_without_handlers(block)) return {kSigDfl, 0};
  const AppHandler handler{action->handler, action->flags};
  if (handler.address > kSigIgn && (action->flags & kSaResethand) != 0) action->handler = kSigDfl;
  return handler;
}

u64 restorer_of(ProcessBlock& block, i32 signal) { return our_action(block, static_cast<u64>(signal))->restorer; }
u64 mask_of(ProcessBlock& block, i32 signal) { return our_action(block, static_cast<u64>(signal))->mask; }

// rt_sigprocmask: as the kernel does for a handler; not under a filter, which may not know the call.
void block_mask_of(ProcessBlock& block, i32 signal) {
  const u64 mask = our_action(block, static_cast<u64>(signal))->mask & ~kOurSignals;
  if (mask == 0 || (block.flags & shared::kBlockFiltered) != 0) return;
  system_call(kSysRtSigprocmask, kSigBlock, as_word(&mask), 0, kSetBytes);
}

// Faults and int3 happen again when the instruction is executed again; the other traps do not. System calls are right here:
// the process is about to die as it would have.
void default_action(const SignalInfo& info, u64 handler) {
  if (handler == kSigIgn && info.code <= 0) return;
  const KernelSigaction fallback{kSigDfl, 0, 0, 0};
  system_call(kSysRtSigaction, static_cast<u64>(info.signal), as_word(&fallback), 0, kSetBytes);
  const bool recurs = info.code > 0 && (info.signal != kSigTrap || info.code == kSiKernel);
  if (recurs) return;
  queue_to_self(static_cast<u64>(info.signal), &info);
}

bool show_belief(ProcessBlock& block, i32 signal, SignalFrame& frame, u64 restorer) {
  if (!returns_through_us(block, restorer)) return false;
  constexpr u64 kSaNodefer = shared::kSaNodefer;
  const AppAction* ours = our_action(block, static_cast<u64>(signal));
  u64 named = ours != nullptr ? ours->mask & kOurSignals : unpack(block.masked_in[signal]);
  if (ours != nullptr && (ours->flags & kSaNodefer) == 0) named |= signal_bit(signal) & kOurSignals;
  const u64 before = virtually_blocked(block);
  frame.mask |= before;
  believe_blocked(block, before | named);
  show_stack(block, frame);
  return true;
}

void app_sigreturn(ProcessBlock& block, u64 context) {
  const u64 at = context + offsetof(SignalFrame, mask);
  const Reader reader{true};
  u64 mask = 0;
  if (!reader.load8(at, mask)) return;  // the kernel will report that
  auto& frame = *reinterpret_cast<SignalFrame*>(context);
  remember(block, frame);
  if ((mask & kOurSignals) != 0) frame.mask = mask & ~kOurSignals;
  believe_blocked(block, mask & kOurSignals);
  take_stack(block, frame);
  frame.ip = place_to_go_on(block, frame);
}

void undo_sigreturn(ProcessBlock& block, const SignalFrame& frame) {
  if (call_number(frame) != kSysRtSigreturn) return;
  const Point* point = find_point(block, frame.ip);
  const bool at_point = point != nullptr && point->role == static_cast<u32>(shared::PointRole::system_call);
  if (!at_point && !has_come_back(frame.ip)) return;
  auto& returning = *reinterpret_cast<SignalFrame*>(frame.sp);
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), false);
  if (entry == nullptr || returning.uc_link != as_word(entry)) return;
  const Before& before = before_of(returning);
  returning.uc_link = 0;
  returning.mask = before.mask;
  returning.stack_base = before.stack_base;
  returning.stack_flags = static_cast<i32>(before.stack_flags);
  returning.stack_size = before.stack_size;
  entry->blocked = before.app_stack_flags & kOurSignals;
  entry->app_stack = before.app_stack;
  entry->app_stack_size = before.app_stack_size;
  entry->app_stack_flags = before.app_stack_flags & ~static_cast<u32>(kOurSignals);
  not_gone_on(block, returning, before.ip);
}

// Signals with the agent's entry keep it: a tool may have been killed in the middle of this.
void take_dispositions(ProcessBlock& block) {
  for (u64 signal = 1; signal <= kSignals; ++signal) {
    KernelSigaction now{};
    if (system_call(kSysRtSigaction, signal, 0, as_word(&now), kSetBytes) != 0 || is_our_entry(now.handler)) continue;
    if (our_action(block, signal) != nullptr)
      our_sigaction(block, signal, now);
    else if (now.handler > kSigIgn)
      other_sigaction(block, signal, &now, 0);
  }
}

void give_dispositions(ProcessBlock& block) {
  for (u64 signal = 1; signal <= kSignals; ++signal) {
    KernelSigaction now{};
    if (system_call(kSysRtSigaction, signal, 0, as_word(&now), kSetBytes) != 0) continue;
    // Only the agent's own are set: a signal that is pending and ignored would be lost (kernel/signal.c, do_sigaction).
    if (!is_our_entry(now.handler)) continue;
    if (const AppAction* ours = our_action(block, signal)) {
      now = {ours->handler, ours->flags, ours->restorer, ours->mask};
    } else {
      show_own_handler(block.others[signal], as_word(&now));
      now.mask |= unpack(block.masked_in[signal]);
    }
    system_call(kSysRtSigaction, signal, as_word(&now), 0, kSetBytes);
  }
}

void take_mask(ProcessBlock& block, u64 blocked) {
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), blocked != block.start_blocked);
  if (entry == nullptr) return;
  entry->blocked = blocked;
  entry->waits = entry->cleared = 0;
  entry->attention = entry->pending = 0;
  entry->steps = 0;
}

u64 give_mask(ProcessBlock& block) {
  const shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), false);
  return (entry != nullptr ? entry->blocked : block.start_blocked) & kOurSignals;
}

void clear_handlers(ProcessBlock& block, bool shares_memory) {
  const KernelSigaction fallback{kSigDfl, 0, 0, 0};
  for (u64 signal = 1; signal <= kSignals; ++signal) {
    if (AppAction* ours = our_action(block, signal)) {
      if (!shares_memory && ours->handler > kSigIgn) *ours = {};
      continue;
    }
    KernelSigaction now{};
    system_call(kSysRtSigaction, signal, 0, as_word(&now), kSetBytes);
    if (now.handler > kSigIgn) system_call(kSysRtSigaction, signal, as_word(&fallback), 0, kSetBytes);
  }
}

// rt_sigaction(signal, new, old, bytes)
long app_sigaction(ProcessBlock& block, u64 signal, u64 wanted, u64 old, u64 bytes) {
  const Reader reader{true};
  signal = static_cast<u32>(signal);  // an int: the upper half may be anything
  KernelSigaction action;
  const bool readable =
      wanted != 0 && reader.copy(reinterpret_cast<u8*>(&action), wanted, sizeof action) == sizeof action;
  // Bad arguments: the kernel says what is wrong with them.
  if (bytes != kSetBytes || signal == 0 || signal > kSignals || (wanted != 0 && !readable))
    return system_call(kSysRtSigaction, signal, wanted, old, bytes);
  long result = 0;
  if (const AppAction* ours = our_action(block, signal)) {
    const AppAction before = *ours;
    // The kernel finds out whether `old` can be written: it writes its own answer, which is then corrected.
    if (old != 0) result = system_call(kSysRtSigaction, signal, 0, old, bytes);
    // As in the kernel, a bad `old` is reported after the action has been set.
    if (wanted != 0)
      if (const long set = our_sigaction(block, signal, action); set != 0) return set;
    if (result == 0 && old != 0) __builtin_memcpy(reinterpret_cast<void*>(old), &before, sizeof before);
    return result;
  }
  return other_sigaction(block, signal, wanted != 0 ? &action : nullptr, old);
}

// rt_sigprocmask(how, set, old, bytes)
long app_sigprocmask(ProcessBlock& block, u64 how, u64 set, u64 old, u64 bytes) {
  const Reader reader{true};
  how = static_cast<u32>(how);  // an int
  u64 wanted = 0;
  const bool readable = set != 0 && reader.load8(set, wanted);
  if (bytes != kSetBytes || (set != 0 && (!readable || how > kSetMask)))
    return system_call(kSysRtSigprocmask, how, set, old, bytes);
  const u64 before = virtually_blocked(block), ours = wanted & kOurSignals;
  // In a handler of one of kOurSignals the kernel blocks it: it may be unblocked.
  const u64 real = how == kSigUnblock ? wanted : wanted & ~kOurSignals;
  const long result =
      interruptible_call(block, kSysRtSigprocmask, how, set != 0 ? as_word(&real) : 0, old, bytes, 0, 0);
  if (result != 0 && result != kFault) return result;  // a bad `old` is reported after the mask has been set
  if (result == 0 && old != 0) *reinterpret_cast<u64*>(old) |= before;
  if (set == 0) return result;
  believe_blocked(block, how == kSigBlock ? before | ours : how == kSigUnblock ? before & ~ours : ours);
  return result;
}

// A wait that puts another mask in force while it lasts: `mask` is the address of that mask. Handlers that run during it may
// hit probes, so kOurSignals are left out of it.
u64 without_our_signals(u64 mask, u64& clean) {
  const Reader reader{true};
  if (mask == 0 || !reader.load8(mask, clean) || (clean & kOurSignals) == 0) return mask;
  clean &= ~kOurSignals;
  return as_word(&clean);
}

void note_signalfd(ProcessBlock& block, u64 mask, u64 bytes) {
  const Reader reader{true};
  u64 named = 0;
  if (bytes != kSetBytes || !reader.load8(mask, named)) return;
  __atomic_fetch_or(&block.by_descriptor, static_cast<u32>(named & kOurSignals), __ATOMIC_RELAXED);
}

void show_mask_to_successor(ProcessBlock& block) {
  for (const u32 signal : shared::kFaultSignalNumbers) {
    if (our_action(block, signal)->handler != 1) continue;
    const KernelSigaction ignore{1, 0, 0, 0};
    system_call(kSysRtSigaction, signal, as_word(&ignore), 0, kSetBytes);
  }
  const u64 blocked = virtually_blocked(block);
  if (blocked != 0) system_call(kSysRtSigprocmask, kSigBlock, as_word(&blocked), 0, kSetBytes);
}

void take_mask_back(ProcessBlock& block) {
  for (const u32 signal : shared::kFaultSignalNumbers) {
    const AppAction& action = *our_action(block, signal);
    if (action.handler != 1) continue;
    const KernelSigaction wanted{action.handler, action.flags, action.restorer, action.mask};
    our_sigaction(block, signal, wanted);
  }
  const u64 ours = kOurSignals;
  system_call(kSysRtSigprocmask, kSigUnblock, as_word(&ours), 0, kSetBytes);
}

}  // namespace uprobe::agent
