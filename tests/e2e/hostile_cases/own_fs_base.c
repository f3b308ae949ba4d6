// SPDX-License-Identifier: MIT
// The program runs with an FS base of its own for a while, as green threads with their own storage do: its memory must not
// change.
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

enum { kWords = 8192, kBase = kWords / 2 };
static uint64_t memory[kWords], before[kWords];

__attribute__((noinline, optimize("no-stack-protector"))) int probed(long a) {
  __asm__ volatile("nop; nop; nop; nop; nop");
  return a + 1;
}

static long arch_prctl(long code, unsigned long value) {
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"((long)SYS_arch_prctl), "D"(code), "S"(value) : "rcx", "r11", "memory");
  return result;
}

int main(void) {
  unsigned long base = 0;
  long sum = 0;
  for (int i = 0; i < kWords; ++i) memory[i] = 0x0101010101010101 * (1 + i % 100);
  memory[kBase] = memory[kBase + 2] = (uint64_t)&memory[kBase];  // it points to itself, as the psABI requires
  memcpy(before, memory, sizeof before);
  arch_prctl(ARCH_GET_FS, (unsigned long)&base);
  arch_prctl(ARCH_SET_FS, (unsigned long)&memory[kBase]);
  for (int i = 0; i < 1000; ++i) sum += probed(i);
  arch_prctl(ARCH_SET_FS, base);
  int changed = 0;
  for (int i = 0; i < kWords; ++i) changed += memory[i] != before[i];
  printf("%ld, %d words changed\n", sum, changed);
  return 0;
}
