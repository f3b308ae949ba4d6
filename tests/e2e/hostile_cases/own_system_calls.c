// SPDX-License-Identifier: MIT
// Signals blocked and handled by system calls of the program's own, as Go and the sanitizers make them.
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/syscall.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }

static long call(long number, long a, long b, long c, long d) {
  register long r10 __asm__("r10") = d;
  long result = number;
  __asm__ volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
  return result;
}

int main(void) {
  const unsigned long all = ~0ul;
  call(SYS_rt_sigprocmask, 2, (long)&all, 0, 8);
  probed(1);
  puts("survived");
  return 0;
}
