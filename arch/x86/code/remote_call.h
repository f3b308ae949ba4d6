// SPDX-License-Identifier: MIT
// A remote call: a thread makes system calls, or runs a function, for the tool, which stops and moves it from outside. If the
// tool is gone, the thread finds the return path by itself.
//
//     call   syscall                        the call; number and arguments are put into the registers from outside
//     home   lea  flags(%rip), %rsp         a function returns here
//            popf
//            mov  sp(%rip), %rsp            from here on a handler may run: the stack is the thread's own again
//            mov  $14, %eax                 rt_sigprocmask(SIG_SETMASK, &mask, 0, 8), all by moves: flags stay as they are
//            ...
//     mask   syscall                        SYSCALL and SYSRET keep the flags (SDM vol. 2)
//            mov  ax(%rip), %rax ...        all other registers
//            jmp  *ip(%rip)
//     data   flags sp mask ax bx cx dx si di bp r8 ... r15 ip
//
// No rt_sigreturn: that would take the extended state, which nothing here touches, from a frame too, and would end what
// restart_syscall is to go on with (kernel: restore_sigcontext).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "arch/abi/thread_registers.h"

namespace uprobe::arch {

struct RemoteCallReturn {
  std::uint64_t flags, sp, mask, ax, bx, cx, dx, si, di, bp, r8, r9, r10, r11, r12, r13, r14, r15, ip;
};

inline constexpr std::uint64_t kRemoteCallHome = 2;       // distance of `home`
inline constexpr std::uint64_t kRemoteCallMaskCall = 45;  // of the `syscall` at `mask`
inline constexpr std::uint64_t kRemoteCallData = 160;     // of `data`
inline constexpr std::uint64_t kRemoteCallBytes = kRemoteCallData + sizeof(RemoteCallReturn);

using RemoteCallCode = std::array<std::uint8_t, kRemoteCallBytes>;

// How a system call goes on that the thread has been taken out of. again: it begins anew; rest: the kernel has kept what is left of it.
enum class Restart { none, again, rest };
// What a thread with these registers and this mask of blocked signals goes back to.
RemoteCallReturn return_to(const ThreadRegisters& registers, std::uint64_t mask, Restart restart);

// The bytes for a thread that goes back to `to`.
RemoteCallCode make_remote_call(const RemoteCallReturn& to);

}  // namespace uprobe::arch
