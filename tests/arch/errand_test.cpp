// A thread that is sent home finds all of its registers, its flags and its mask (arch/x86/code/errand.h), run as it is.
#include "arch/x86/code/errand.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include <cstring>

namespace uprobe::x86 {
namespace {

// errand_leave(code): goes there and comes back through errand_arrive, which has kept the registers in errand_seen: ax bx cx dx
// si di bp r8 ... r15 sp flags.
asm(R"(
        .text
errand_leave:
        push %rbx
        push %rbp
        push %r12
        push %r13
        push %r14
        push %r15
        mov  %rsp, errand_stack(%rip)
        jmp  *%rdi
errand_arrive:
        mov  %rax, errand_seen(%rip)
        mov  %rbx, errand_seen+8(%rip)
        mov  %rcx, errand_seen+16(%rip)
        mov  %rdx, errand_seen+24(%rip)
        mov  %rsi, errand_seen+32(%rip)
        mov  %rdi, errand_seen+40(%rip)
        mov  %rbp, errand_seen+48(%rip)
        mov  %r8, errand_seen+56(%rip)
        mov  %r9, errand_seen+64(%rip)
        mov  %r10, errand_seen+72(%rip)
        mov  %r11, errand_seen+80(%rip)
        mov  %r12, errand_seen+88(%rip)
        mov  %r13, errand_seen+96(%rip)
        mov  %r14, errand_seen+104(%rip)
        mov  %r15, errand_seen+112(%rip)
        mov  %rsp, errand_seen+120(%rip)
        mov  errand_stack(%rip), %rsp
        pushf
        popq errand_seen+128(%rip)
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
errand_seen:
        .skip 136
errand_stack:
        .skip 8
        .text
)");
extern "C" {
void errand_leave(const void* code);
void errand_arrive();
extern std::uint64_t errand_seen[17];
}

constexpr std::uint64_t kFlags = 0xcd7;  // CF PF AF ZF SF OF DF, IF and the fixed bits: 0x202 is always there

ErrandReturn some_registers(const void* stack) {
  ErrandReturn to{};
  std::uint64_t value = 0x1111111111111111;
  for (std::uint64_t* r : {&to.ax, &to.bx, &to.cx, &to.dx, &to.si, &to.di, &to.bp, &to.r8, &to.r9, &to.r10, &to.r11,
                           &to.r12, &to.r13, &to.r14, &to.r15})
    *r = value += 0x0102030405060708;
  to.flags = kFlags | 0x202;
  to.sp = reinterpret_cast<std::uint64_t>(stack);
  to.mask = 1ull << (SIGUSR2 - 1);
  to.ip = reinterpret_cast<std::uint64_t>(&errand_arrive);
  return to;
}

TEST(Errand, TheWayHomeRestoresEverything) {
  alignas(16) static char stack[4096];
  const ErrandReturn to = some_registers(stack + sizeof stack);
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  const ErrandCode code = make_errand(to);
  std::memcpy(page, code.data(), code.size());
  ASSERT_EQ(::mprotect(page, 4096, PROT_READ | PROT_EXEC), 0);  // nothing may be pushed there
  sigset_t before, after;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &before);
  errand_leave(static_cast<const char*>(page) + kErrandHome);
  ::pthread_sigmask(SIG_SETMASK, &before, &after);
  ::munmap(page, 4096);

  EXPECT_TRUE(sigismember(&after, SIGUSR2));
  EXPECT_FALSE(sigismember(&after, SIGUSR1));
  const std::uint64_t expected[] = {to.ax, to.bx,  to.cx,  to.dx,  to.si,  to.di,  to.bp,  to.r8,
                                    to.r9, to.r10, to.r11, to.r12, to.r13, to.r14, to.r15, to.sp};
  for (std::size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(errand_seen[i], expected[i]) << i;
  EXPECT_EQ(errand_seen[16] & kFlags, kFlags & 0xfff);
}

TEST(Errand, PlacesAreWhereTheHeaderSays) {
  const ErrandCode code = make_errand({});
  for (const std::uint64_t call : {std::uint64_t{0}, kErrandMaskCall}) {
    EXPECT_EQ(code[call], 0x0f);
    EXPECT_EQ(code[call + 1], 0x05);
  }
}

}  // namespace
}  // namespace uprobe::x86
