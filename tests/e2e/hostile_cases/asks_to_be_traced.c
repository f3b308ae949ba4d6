// SPDX-License-Identifier: MIT
// A program that finds out whether it has a debugger: by asking its parent to trace it.
#include <stdio.h>
#include <sys/ptrace.h>

__attribute__((noinline)) int probed(int value) {
  __asm__ volatile("");
  return value + 1;
}

int main(void) {
  probed(1);
  printf("%ld", ptrace(PTRACE_TRACEME, 0, 0, 0));
  printf(" %ld\n", ptrace(PTRACE_TRACEME, 0, 0, 0));
  for (int i = 0; i < 100; ++i) probed(i);
}
