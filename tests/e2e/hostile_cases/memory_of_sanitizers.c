// SPDX-License-Identifier: MIT
// Counts mappings in the range of the sanitizers' shadow memory: they end a program that has anything there. Above the reach of
// its own code, below the stack and the libraries, which 28 random bits move.
#include <stdio.h>

__attribute__((noinline)) void probed(void) { __asm__ volatile(""); }

int main(void) {
  static const unsigned long kThread[2] = {0x568000000000, 0x7e8000000000}, kAddress[2] = {0x7fff7000, 0x10007fff8000};
  char line[512];
  int in_thread = 0, in_address = 0;
  probed();
  FILE* maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps)) {
    unsigned long begin = 0, end = 0;
    sscanf(line, "%lx-%lx", &begin, &end);
    in_thread += begin < kThread[1] && kThread[0] < end;
    in_address += begin < kAddress[1] && kAddress[0] < end;
  }
  printf("%d %d\n", in_thread, in_address);
  return 0;
}
