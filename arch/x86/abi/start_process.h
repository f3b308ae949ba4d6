// SPDX-License-Identifier: MIT
// clone(2), with a function as all that the new process does.
#pragma once

#include <sys/syscall.h>

#include <cstdint>

namespace uprobe::arch {

// `work(of)` on a stack that ends at `stack`, a multiple of 16; it must not return. A negative errno.
inline long start_process(int flags, char* stack, void (*work)(void*), void* of) {
  register std::uint64_t fourth asm("r10") = 0;
  register std::uint64_t fifth asm("r8") = 0;
  register void* kept asm("r12") = of;
  long result = SYS_clone;
  asm volatile(
      "syscall\n"
      "test %%rax, %%rax\n"
      "jnz 1f\n"
      "xor %%ebp, %%ebp\n"  // the outermost frame
      "mov %%r12, %%rdi\n"
      "call *%%rbx\n"
      "ud2\n"
      "1:"
      : "+a"(result)
      : "D"(static_cast<std::uint64_t>(flags)), "S"(stack), "d"(0UL), "r"(fourth), "r"(fifth), "b"(work), "r"(kept)
      : "rcx", "r11", "memory");
  return result;
}

}  // namespace uprobe::arch
