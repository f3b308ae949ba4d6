// SPDX-License-Identifier: MIT
// A thread that comes by a jump has no signal frame, and is on a stack of the program's. It has its call made in the agent as at a
// breakpoint (calls.cpp), and goes on after it.
//
// What that takes of the stack counts: the program may have no more than it needs itself. No hit is recorded here, and nothing
// that records is inlined.
//
// A signal that comes before the call is made has its handler before it: the thread comes again, by a signal. One that the call lets
// in is deferred, as always in the agent, and has its handler when the thread leaves. The system calls are the program's own; one
// more of rt_sigprocmask, where a signal was held back that the call lets in.
#include "preload/quick_calls.h"

#include "preload/deferred_signals.h"
#include "preload/mappings.h"
#include "preload/thread.h"
#include "preload/virtual_mask.h"

namespace uprobe::agent {
namespace {

bool change_mask(ProcessBlock& block, const SystemCall& call, long& result) {
  const auto& [how, set, old, bytes, unused, unused_too] = call.arguments;
  result = app_sigprocmask(block, how, set, old, bytes);
  if (result == kNotMade) return false;
  const u64 blocked = virtually_blocked(block);
  if ((deferred_signals(block) & ~blocked) == 0) return true;
  u64 mask = 0;
  system_call(kSysRtSigprocmask, 0, 0, as_word(&mask), sizeof mask);
  release_deferred(block, blocked, mask);
  return true;
}

}  // namespace

bool is_quick(long number) {
  return number == kSysRtSigaction || number == kSysRtSigprocmask || number == kSysMmap || number == kSysMprotect ||
         number == kSysPkeyMprotect;
}

bool make_at_once(ProcessBlock& block, const SystemCall& call, long& result) {
  const u64(&with)[6] = call.arguments;
  if (!is_quick(call.number)) return false;
  // Before the first hit of a process nothing else has found out where its libc keeps a thread's data; whether the return of a handler
  // is seen depends on it (returns.cpp).
  static_cast<void>(thread_id(block, true));
  if (!begin_call(block)) return false;
  if (call.number == kSysRtSigprocmask) return change_mask(block, call, result);
  if (call.number == kSysMmap) return map_pages_at_once(block, call, result);
  if (call.number != kSysRtSigaction) return protect_pages_at_once(block, call, result);
  result = app_sigaction(block, with[0], with[1], with[2], with[3]);
  return true;
}

}  // namespace uprobe::agent
