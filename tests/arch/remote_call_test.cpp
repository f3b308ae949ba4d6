// SPDX-License-Identifier: MIT
// A thread on the return path finds all of its registers, its flags and its mask (arch/x86/code/remote_call.h); run as machine
// code.
#include "arch/code/remote_call.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include <cstring>

namespace uprobe::arch {
namespace {

// remote_call_leave(code): goes there and comes back through remote_call_arrive, which keeps the registers in remote_call_seen:
// ax bx cx dx si di bp r8 ... r15 sp flags.
asm(R"(
        .text
remote_call_leave:
        push %rbx
        push %rbp
        push %r12
        push %r13
        push %r14
        push %r15
        mov  %rsp, remote_call_stack(%rip)
        jmp  *%rdi
remote_call_arrive:
        mov  %rax, remote_call_seen(%rip)
        mov  %rbx, remote_call_seen+8(%rip)
        mov  %rcx, remote_call_seen+16(%rip)
        mov  %rdx, remote_call_seen+24(%rip)
        mov  %rsi, remote_call_seen+32(%rip)
        mov  %rdi, remote_call_seen+40(%rip)
        mov  %rbp, remote_call_seen+48(%rip)
        mov  %r8, remote_call_seen+56(%rip)
        mov  %r9, remote_call_seen+64(%rip)
        mov  %r10, remote_call_seen+72(%rip)
        mov  %r11, remote_call_seen+80(%rip)
        mov  %r12, remote_call_seen+88(%rip)
        mov  %r13, remote_call_seen+96(%rip)
        mov  %r14, remote_call_seen+104(%rip)
        mov  %r15, remote_call_seen+112(%rip)
        mov  %rsp, remote_call_seen+120(%rip)
        mov  remote_call_stack(%rip), %rsp
        pushf
        popq remote_call_seen+128(%rip)
        cld
        pop  %r15
        pop  %r14
        pop  %r13
        pop  %r12
        pop  %rbp
        pop  %rbx
        ret
        .bss
        .balign 8
remote_call_seen:
        .skip 136
remote_call_stack:
        .skip 8
        .text
)");
extern "C" {
void remote_call_leave(const void* code);
void remote_call_arrive();
extern std::uint64_t remote_call_seen[17];
}

constexpr std::uint64_t kFlags = 0xcd7;  // CF PF AF ZF SF OF DF, IF and the fixed bits: 0x202 is always there

RemoteCallReturn some_registers(const void* stack) {
  RemoteCallReturn to{};
  std::uint64_t value = 0x1111111111111111;
  for (std::uint64_t* r : {&to.ax, &to.bx, &to.cx, &to.dx, &to.si, &to.di, &to.bp, &to.r8, &to.r9, &to.r10, &to.r11,
                           &to.r12, &to.r13, &to.r14, &to.r15})
    *r = value += 0x0102030405060708;
  to.flags = kFlags | 0x202;
  to.sp = reinterpret_cast<std::uint64_t>(stack);
  to.mask = 1ull << (SIGUSR2 - 1);
  to.ip = reinterpret_cast<std::uint64_t>(&remote_call_arrive);
  return to;
}

TEST(RemoteCall, TheReturnPathRestoresEverything) {
  alignas(16) static char stack[4096];
  const RemoteCallReturn to = some_registers(stack + sizeof stack);
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  const RemoteCallCode code = make_remote_call(to);
  std::memcpy(page, code.data(), code.size());
  ASSERT_EQ(::mprotect(page, 4096, PROT_READ | PROT_EXEC), 0);  // nothing may be pushed there
  sigset_t before, after;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &before);
  remote_call_leave(static_cast<const char*>(page) + kRemoteCallHome);
  ::pthread_sigmask(SIG_SETMASK, &before, &after);
  ::munmap(page, 4096);

  EXPECT_TRUE(sigismember(&after, SIGUSR2));
  EXPECT_FALSE(sigismember(&after, SIGUSR1));
  const std::uint64_t expected[] = {to.ax, to.bx,  to.cx,  to.dx,  to.si,  to.di,  to.bp,  to.r8,
                                    to.r9, to.r10, to.r11, to.r12, to.r13, to.r14, to.r15, to.sp};
  for (std::size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(remote_call_seen[i], expected[i]) << i;
  EXPECT_EQ(remote_call_seen[16] & kFlags, kFlags & 0xfff);
}

TEST(RemoteCall, PlacesAreWhereTheHeaderSays) {
  const RemoteCallCode code = make_remote_call({});
  for (const std::uint64_t call : {std::uint64_t{0}, kRemoteCallMaskCall}) {
    EXPECT_EQ(code[call], 0x0f);
    EXPECT_EQ(code[call + 1], 0x05);
  }
}

}  // namespace
}  // namespace uprobe::arch
