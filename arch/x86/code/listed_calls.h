// SPDX-License-Identifier: MIT
// Code that makes several system calls, one after the other, of a list in memory, and then returns as after a single call
// (return_frame.h), so that it needs no tool either.
//
//     next   mov  take(%rbx), %rax          an earlier result becomes an argument
//            mov  (%rax), %rax
//            mov  put(%rbx), %rcx
//            mov  %rax, (%rcx)
//            mov  number(%rbx), %rax
//            mov  arguments(%rbx), ...      %rdi %rsi %rdx %r10 %r8 %r9
//            syscall
//     after  mov  %rax, number(%rbx)        its result
//            add  $72, %rbx
//            dec  %rbp
//            jne  next
//            push $15                       rt_sigreturn: see return_frame.h
//            pop  %rax
//            syscall
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "arch/abi/thread_registers.h"

namespace uprobe::arch {

struct ListedCall {
  std::uint64_t number;  // its result, after the call
  CallArguments arguments;
  std::uint64_t take, put;  // addresses of two words: the first is copied to the second before the call
};
static_assert(sizeof(ListedCall) == 72 && offsetof(ListedCall, take) == 56);

inline constexpr std::array<std::uint8_t, 64> kListedCalls = {
    0x48, 0x8b, 0x43, 0x38,  // mov 56(%rbx), %rax
    0x48, 0x8b, 0x00,        // mov (%rax), %rax
    0x48, 0x8b, 0x4b, 0x40,  // mov 64(%rbx), %rcx
    0x48, 0x89, 0x01,        // mov %rax, (%rcx)
    0x48, 0x8b, 0x03,        // mov (%rbx), %rax
    0x48, 0x8b, 0x7b, 0x08,  // mov 8(%rbx), %rdi
    0x48, 0x8b, 0x73, 0x10,  // mov 16(%rbx), %rsi
    0x48, 0x8b, 0x53, 0x18,  // mov 24(%rbx), %rdx
    0x4c, 0x8b, 0x53, 0x20,  // mov 32(%rbx), %r10
    0x4c, 0x8b, 0x43, 0x28,  // mov 40(%rbx), %r8
    0x4c, 0x8b, 0x4b, 0x30,  // mov 48(%rbx), %r9
    0x0f, 0x05,              // syscall
    0x48, 0x89, 0x03,        // mov %rax, (%rbx)
    0x48, 0x83, 0xc3, 0x48,  // add $72, %rbx
    0x48, 0xff, 0xcd,        // dec %rbp
    0x75, 0xc9,              // jne next
    0x6a, 0x0f,              // push $15
    0x58,                    // pop %rax
    0x0f, 0x05,              // syscall
    0xcc, 0xcc, 0xcc, 0xcc,  // never reached
};
inline constexpr std::uint64_t kAfterListedCall = 43;

// The thread is about to make the `count` calls of the list at `list`, by the code at `code`; its stack pointer is at a frame.
inline void set_listed_calls(ThreadRegisters& r, std::uint64_t code, std::uint64_t list, std::uint64_t count) {
  set_instruction_pointer(r, code);
  r.rbx = list;
  r.rbp = count;
}
// Whether it has made the last call just now.
inline bool has_made_listed_calls(const ThreadRegisters& r, std::uint64_t code) {
  return instruction_pointer(r) == code + kAfterListedCall && r.rbp == 1;
}

}  // namespace uprobe::arch
