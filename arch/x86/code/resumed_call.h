// SPDX-License-Identifier: MIT
// A system call that a stop has cut short, and that goes on. It may have done a part of its work already, or waited for a part of
// its time: what is left is a call with other arguments, and the program must find its own registers, and the whole result, after it.
// The thread makes it in this code, which needs no help, and has what it needs on the thread's stack, below the red zone:
//
//     call   syscall                        a handler that runs by then ends the call, as it would have ended the program's own
//     back   pushf
//            mov  di(%rsp), %rdi ...        the arguments are the program's, rcx is what SYSCALL leaves (SDM vol. 2)
//            cmpq $0, done(%rsp)
//            je   whole                     nothing was done before: the result is the result
//            test %rax, %rax
//            jns  sum
//            xor  %eax, %eax                the kernel reports no error where something has been done
//     sum    add  done(%rsp), %rax
//     whole  popf
//            lea  ip(%rsp), %rsp
//            ret  $128
//
//     rsp -> done di si dx r10 r8 seconds nanoseconds vector[] ip | red zone | the thread's stack
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "arch/abi/thread_registers.h"

namespace uprobe::arch {

inline constexpr std::size_t kMostResumedParts = 8;

struct ResumedCall {
  std::uint64_t done;
  std::uint64_t di, si, dx, r10, r8;
  std::int64_t time[2];                        // for calls that are told by reference how long to wait
  std::uint64_t parts[2 * kMostResumedParts];  // struct iovec, for writev
  std::uint64_t ip;
};

// What the program is to find after the call.
inline void keep_registers(ResumedCall& call, const ThreadRegisters& r) {
  call.di = r.rdi, call.si = r.rsi, call.dx = r.rdx, call.r10 = r.r10, call.r8 = r.r8;
  call.ip = r.rip;
}

inline constexpr std::uint64_t kResumedRedZone = 128;
inline constexpr std::uint64_t kResumedDistance =
    kResumedRedZone + sizeof(ResumedCall);        // below the thread's stack pointer
inline constexpr std::uint64_t kResumedBack = 2;  // distance of `back`

inline constexpr std::array<std::uint8_t, 68> kResumeCode = {
    0x0f, 0x05,                                      // syscall
    0x9c,                                            // pushf
    0x48, 0x8b, 0x7c, 0x24, 0x10,                    // mov 16(%rsp), %rdi
    0x48, 0x8b, 0x74, 0x24, 0x18,                    // mov 24(%rsp), %rsi
    0x48, 0x8b, 0x54, 0x24, 0x20,                    // mov 32(%rsp), %rdx
    0x4c, 0x8b, 0x54, 0x24, 0x28,                    // mov 40(%rsp), %r10
    0x4c, 0x8b, 0x44, 0x24, 0x30,                    // mov 48(%rsp), %r8
    0x48, 0x8b, 0x8c, 0x24, 0xc8, 0x00, 0x00, 0x00,  // mov 200(%rsp), %rcx
    0x48, 0x83, 0x7c, 0x24, 0x08, 0x00,              // cmpq $0, 8(%rsp)
    0x74, 0x0c,                                      // je whole
    0x48, 0x85, 0xc0,                                // test %rax, %rax
    0x79, 0x02,                                      // jns sum
    0x31, 0xc0,                                      // xor %eax, %eax
    0x48, 0x03, 0x44, 0x24, 0x08,                    // add 8(%rsp), %rax
    0x9d,                                            // popf
    0x48, 0x8d, 0xa4, 0x24, 0xc0, 0x00, 0x00, 0x00,  // lea ip(%rsp), %rsp
    0xc2, 0x80, 0x00,                                // ret $128
};
static_assert(offsetof(ResumedCall, ip) == 0xc0 && kResumedRedZone == 0x80);

}  // namespace uprobe::arch
