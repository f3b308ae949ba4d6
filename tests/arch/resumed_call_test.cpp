// SPDX-License-Identifier: MIT
// The rest of a call: registers, flags and stack after it are those of the whole call, and so is the result (resumed_call.h).
#include "arch/code/resumed_call.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace uprobe::arch {
namespace {

// resumed_run(code, frame, number): makes the call with arguments 1 ... 5, from a stack as a thread would have it.
// resumed_seen: ax di si dx r10 r8 cx flags, and the distance of the stack pointer from its old value.
asm(R"(
        .text
resumed_run:
        push %rbx
        push %rbp
        mov  %rsp, %rbx
        mov  %rdi, %rbp
        mov  %rdx, %rax
        sub  $328, %rsp
        mov  %rsp, %rdi
        mov  $25, %ecx
        rep  movsq
        mov  $1, %edi
        mov  $2, %esi
        mov  $3, %edx
        mov  $4, %r10d
        mov  $5, %r8d
        stc
        jmp  *%rbp
resumed_arrive:
        mov  %rax, resumed_seen(%rip)
        mov  %rdi, resumed_seen+8(%rip)
        mov  %rsi, resumed_seen+16(%rip)
        mov  %rdx, resumed_seen+24(%rip)
        mov  %r10, resumed_seen+32(%rip)
        mov  %r8, resumed_seen+40(%rip)
        mov  %rcx, resumed_seen+48(%rip)
        pushf
        popq resumed_seen+56(%rip)
        mov  %rsp, %rax
        sub  %rbx, %rax
        mov  %rax, resumed_seen+64(%rip)
        mov  %rbx, %rsp
        pop  %rbp
        pop  %rbx
        ret
        .bss
        .balign 8
resumed_seen:
        .skip 72
        .text
)");
extern "C" void resumed_run(void* code, const ResumedCall* frame, std::uint64_t number);
extern "C" char resumed_arrive[];
extern "C" struct { std::int64_t ax, di, si, dx, r10, r8, cx, flags, distance; } resumed_seen;

static_assert(sizeof(ResumedCall) == 25 * 8 && kResumedDistance == 328);

class ResumedCalls : public testing::Test {
 protected:
  ResumedCalls() {
    code_ = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memcpy(code_, kResumeCode.data(), kResumeCode.size());
  }
  ~ResumedCalls() override { ::munmap(code_, 4096); }

  std::int64_t run(long number, std::uint64_t done) {
    const auto ip = reinterpret_cast<std::uint64_t>(resumed_arrive);
    const ResumedCall frame{
        .done = done, .di = 11, .si = 12, .dx = 13, .r10 = 14, .r8 = 15, .time = {}, .parts = {}, .ip = ip};
    resumed_run(code_, &frame, static_cast<std::uint64_t>(number));
    EXPECT_EQ(resumed_seen.di, 11);
    EXPECT_EQ(resumed_seen.si, 12);
    EXPECT_EQ(resumed_seen.dx, 13);
    EXPECT_EQ(resumed_seen.r10, 14);
    EXPECT_EQ(resumed_seen.r8, 15);
    EXPECT_EQ(static_cast<std::uint64_t>(resumed_seen.cx), ip);
    EXPECT_EQ(resumed_seen.flags & 1, 1);
    EXPECT_EQ(resumed_seen.distance, 0);
    return resumed_seen.ax;
  }

  void* code_;
};

constexpr long kNoCall = 5000;

TEST_F(ResumedCalls, TheResultIsThatOfBothParts) { EXPECT_EQ(run(SYS_getpid, 1000), ::getpid() + 1000); }

TEST_F(ResumedCalls, AnErrorAfterAPartIsNone) { EXPECT_EQ(run(kNoCall, 1000), 1000); }

TEST_F(ResumedCalls, WithoutAPartTheResultIsWhatItIs) {
  EXPECT_EQ(run(SYS_getpid, 0), ::getpid());
  EXPECT_EQ(run(kNoCall, 0), -ENOSYS);
}

}  // namespace
}  // namespace uprobe::arch
