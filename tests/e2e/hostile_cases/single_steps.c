// SPDX-License-Identifier: MIT
// A program that single-steps itself sees its own instructions, each once.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("nop; nop" ::"r"(n)); }

static volatile int steps;
static void handle(int number) { steps += number == SIGTRAP; }

int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  sigaction(SIGTRAP, &action, NULL);
  __asm__ volatile("sub $128, %%rsp; pushfq; orl $0x100, (%%rsp); popfq" ::: "memory", "cc");
  probed(1);
  __asm__ volatile("pushfq; andl $~0x100, (%%rsp); popfq; add $128, %%rsp" ::: "memory", "cc");
  printf("steps %d\n", steps);
  return 0;
}
