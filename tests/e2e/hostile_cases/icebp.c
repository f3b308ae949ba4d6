// SPDX-License-Identifier: MIT
// int1 without a handler kills, although it is a trap that does not come again.
#define _GNU_SOURCE
#include <sys/types.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }

int main(void) {
  probed(1);
  __asm__ volatile(".byte 0xf1");
  return 3;
}
