// SPDX-License-Identifier: MIT
// A thread that a signal finds between the last look at its list of signals and the instruction that leaves (entry.S) is sent back to
// the look.
#include "preload/handler_entry.h"
#include "preload/system_call.h"

namespace uprobe::agent {
namespace {

extern "C" {
extern const u8 uprobe_resume_look[] __attribute__((visibility("hidden")));
extern const u8 uprobe_resume_iretq[] __attribute__((visibility("hidden")));
extern const u8 uprobe_sigreturn_look[] __attribute__((visibility("hidden")));
extern const u8 uprobe_sigreturn_call[] __attribute__((visibility("hidden")));
extern const u8 uprobe_enter_look[] __attribute__((visibility("hidden")));
extern const u8 uprobe_enter_jump[] __attribute__((visibility("hidden")));
extern const u8 uprobe_call_look[] __attribute__((visibility("hidden")));
extern const u8 uprobe_call_syscall[] __attribute__((visibility("hidden")));
extern const u8 uprobe_call_not_made[] __attribute__((visibility("hidden")));
}

bool is_between(u64 ip, const u8* first, const u8* last) { return ip >= as_word(first) && ip <= as_word(last); }

}  // namespace

void look_again(SignalFrame& frame) {
  const u64 ip = frame.ip;
  if (ip == as_word(uprobe_resume_iretq)) frame.r8 = *reinterpret_cast<const u64*>(frame.sp + 40);
  if (is_between(ip, uprobe_resume_look, uprobe_resume_iretq)) {
    frame.sp = frame.r8 - offsetof(HandlerFrame, context);
    frame.ip = as_word(uprobe_resume_look);
  }
  if (is_between(ip, uprobe_sigreturn_look, uprobe_sigreturn_call)) {
    frame.sp = frame.r8 - offsetof(HandlerFrame, context);
    frame.ip = as_word(uprobe_sigreturn_look);
  }
  if (is_between(ip, uprobe_enter_look, uprobe_enter_jump)) frame.ip = as_word(uprobe_enter_look);
  if (is_between(ip, uprobe_call_look, uprobe_call_syscall)) frame.ip = as_word(uprobe_call_not_made);
}

}  // namespace uprobe::agent
