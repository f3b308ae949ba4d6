// Signal dispositions and masks as the application believes them to be. The faults stay with us, and SIGTRAP, SIGSEGV and
// SIGBUS stay deliverable, or a breakpoint would kill; what the application sets is remembered, shown when it asks, and used when one
// of its signals is passed on.
//
// The calls made here are the application's own rt_sigaction and rt_sigprocmask, with changed arguments: a filter that
// lets them pass lets these pass.
#include "preload/masks.h"

#include "engine/shared/agent_header.h"
#include "preload/agent.h"
#include "preload/system_call.h"
#include "preload/thread.h"

namespace uprobe::agent {
namespace {

using shared::AppAction;
using shared::KernelSigaction;
using shared::kOurSignals;

constexpr u64 kSetBytes = 8;  // the kernel's sigset_t
constexpr u64 kSigBlock = 0, kSigUnblock = 1, kSigSetmask = 2;
constexpr u64 kSaResethand = 0x80000000;
constexpr u64 kKnownFlags = 0xdc000807;  // what the kernel keeps of sa_flags (UAPI_SA_FLAGS, SA_RESTORER)
constexpr u64 kNeverBlocked = 1ull << (9 - 1) | 1ull << (19 - 1);  // SIGKILL, SIGSTOP
constexpr long kFault = -14;                                       // EFAULT
constexpr u64 kSigIll = 4, kSigTrap = 5, kSigBus = 7, kSigFpe = 8, kSigSegv = 11, kSignals = 64;
constexpr u64 kOurs[] = {kSigTrap, kSigSegv, kSigBus, kSigFpe, kSigIll};  // in the order of AppSignal

u64 believed_blocked(ProcessBlock& block) {
  const shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), false);
  return entry != nullptr ? entry->blocked : block.start_blocked;
}

void believe_blocked(ProcessBlock& block, u64 blocked) {
  if (blocked == believed_blocked(block)) return;
  shared::ThreadEntry* entry = thread_entry(block, thread_pointer(), true);
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
    if (kOurs[i] == signal) return &block.actions[i];
  return nullptr;
}

// What the kernel is told for one of our signals. SIGTRAP: always our own way. A fault: the application's flags, mask and
// restorer with our entry, so that its handler can be entered as the kernel entered us.
KernelSigaction installed_for(u64 signal, const AppAction& app) {
  const u64 entry = as_word(signal == kSigTrap ? uprobe_trap_entry : uprobe_fault_entry);
  // A fault that nobody handles keeps our way as well, and dies when it is passed on.
  if (signal == kSigTrap || app.handler <= 1) return {entry, shared::kAgentSaFlags, as_word(uprobe_restorer), 0};
  return {as_word(uprobe_app_fault_entry), (app.flags & ~kSaResethand) | shared::kSaSiginfo, app.restorer,
          app.mask & ~kOurSignals};
}

// rt_sigaction(signal, wanted, null) for one of our signals.
long our_sigaction(ProcessBlock& block, u64 signal, const KernelSigaction& wanted) {
  if (borrows_memory(block)) return 0;
  const AppAction app{wanted.handler, wanted.flags & kKnownFlags, wanted.restorer, wanted.mask & ~kNeverBlocked};
  const KernelSigaction kernel = installed_for(signal, app);
  const long result = system_call(kSysRtSigaction, signal, as_word(&kernel), 0, kSetBytes);
  if (result == 0) *our_action(block, signal) = app;
  return result;
}

}  // namespace

u64 handler_to_call(ProcessBlock& block, i32 signal) {
  AppAction* action = our_action(block, static_cast<u64>(signal));
  const u64 handler = action->handler;
  if (handler > 1 && (action->flags & kSaResethand) != 0) action->handler = 0;
  return handler;
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
    // Whether `old` can be written is for the kernel to find out: it writes what it has, we put the truth over it.
    if (old != 0) result = system_call(kSysRtSigaction, signal, 0, old, bytes);
    // A bad `old` shows after the action has been set, as in the kernel.
    if (wanted != 0)
      if (const long set = our_sigaction(block, signal, action); set != 0) return set;
    if (result == 0 && old != 0) __builtin_memcpy(reinterpret_cast<void*>(old), &before, sizeof before);
    return result;
  }
  const u8 remembered = block.masked_in[signal];
  const u8 named = pack(action.mask);
  action.mask &= ~kOurSignals;
  result = system_call(kSysRtSigaction, signal, wanted != 0 ? as_word(&action) : 0, old, bytes);
  if (result != 0 && result != kFault) return result;
  if (result == 0 && old != 0) reinterpret_cast<KernelSigaction*>(old)->mask |= unpack(remembered);
  if (wanted != 0 && !borrows_memory(block)) block.masked_in[signal] = named;
  return result;
}

// rt_sigprocmask(how, set, old, bytes)
long app_sigprocmask(ProcessBlock& block, u64 how, u64 set, u64 old, u64 bytes) {
  const Reader reader{true};
  how = static_cast<u32>(how);  // an int
  u64 wanted = 0;
  const bool readable = set != 0 && reader.load8(set, wanted);
  if (bytes != kSetBytes || (set != 0 && (!readable || how > kSigSetmask)))
    return system_call(kSysRtSigprocmask, how, set, old, bytes);
  const u64 before = believed_blocked(block), ours = wanted & kOurSignals;
  // In a handler of one of our signals it is blocked in fact: unblocked it may be.
  const u64 real = how == kSigUnblock ? wanted : wanted & ~kOurSignals;
  const long result = system_call(kSysRtSigprocmask, how, set != 0 ? as_word(&real) : 0, old, bytes);
  if (result != 0 && result != kFault) return result;  // a bad `old` shows after the mask has been set
  if (result == 0 && old != 0) *reinterpret_cast<u64*>(old) |= before;
  if (set == 0) return result;
  believe_blocked(block, how == kSigBlock ? before | ours : how == kSigUnblock ? before & ~ours : ours);
  return result;
}

// A wait that puts another mask in force while it lasts: `mask` is the address of that mask. Handlers that run meanwhile may
// hit probes, so our signals stay out of it.
u64 without_our_signals(u64 mask, u64& clean) {
  const Reader reader{true};
  if (mask == 0 || !reader.load8(mask, clean) || (clean & kOurSignals) == 0) return mask;
  clean &= ~kOurSignals;
  return as_word(&clean);
}

void show_mask_to_successor(ProcessBlock& block) {
  for (const u64 signal : kOurs) {
    if (our_action(block, signal)->handler != 1) continue;
    const KernelSigaction ignore{1, 0, 0, 0};
    system_call(kSysRtSigaction, signal, as_word(&ignore), 0, kSetBytes);
  }
  const u64 blocked = believed_blocked(block);
  if (blocked != 0) system_call(kSysRtSigprocmask, kSigBlock, as_word(&blocked), 0, kSetBytes);
}

void take_mask_back(ProcessBlock& block) {
  for (const u64 signal : kOurs) {
    const AppAction& action = *our_action(block, signal);
    if (action.handler != 1) continue;
    const KernelSigaction wanted{action.handler, action.flags, action.restorer, action.mask};
    our_sigaction(block, signal, wanted);
  }
  const u64 ours = kOurSignals;
  system_call(kSysRtSigprocmask, kSigUnblock, as_word(&ours), 0, kSetBytes);
}

}  // namespace uprobe::agent
