// SPDX-License-Identifier: MIT
#include "arch/code/return_frame.h"

#include <signal.h>

namespace uprobe::arch {

ReturnFrame make_return_frame(const ThreadRegisters& r, std::uint64_t mask) {
  constexpr std::uint64_t kRestoreStackSegment = 0x6;  // UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS
  constexpr std::int32_t kNoAlternateStack = 2;        // SS_DISABLE
  ReturnFrame f{};
  f.uc_flags = kRestoreStackSegment;
  f.stack_flags = kNoAlternateStack;
  f.r8 = r.r8, f.r9 = r.r9, f.r10 = r.r10, f.r11 = r.r11, f.r12 = r.r12, f.r13 = r.r13, f.r14 = r.r14, f.r15 = r.r15;
  f.di = r.rdi, f.si = r.rsi, f.bp = r.rbp, f.bx = r.rbx, f.dx = r.rdx, f.ax = r.rax, f.cx = r.rcx;
  f.sp = r.rsp, f.ip = r.rip, f.flags = r.eflags;
  f.cs = static_cast<std::uint16_t>(r.cs), f.ss = static_cast<std::uint16_t>(r.ss);
  f.mask = mask;
  return f;
}

bool is_of_breakpoint(std::span<const std::uint64_t> words) {
  constexpr std::size_t kInformation = (sizeof(HandlerStack) - offsetof(HandlerStack, context.ip)) / sizeof words[0];
  constexpr std::uint64_t kKernel = 0x80;  // SI_KERNEL, in the word after si_signo and si_errno
  return words.size() > kInformation + 1 && static_cast<std::uint32_t>(words[kInformation]) == SIGTRAP &&
         static_cast<std::uint32_t>(words[kInformation + 1]) == kKernel;
}

bool is_plausible(const ReturnFrame& frame, std::uint64_t at) {
  constexpr std::uint64_t kMostState = 1 << 16;  // from a frame to its extended state
  return frame.cs == kLongModeCodeSegment && frame.fpstate - at <= kMostState;
}

}  // namespace uprobe::arch
