// SPDX-License-Identifier: MIT
// A coroutine made with the sigaltstack trick (GNU Pth, QEMU): control goes back later to the frame of a handler that has
// returned.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }

static jmp_buf start, back;

static void enter(int number) {
  volatile unsigned long words[32];
  for (unsigned i = 0; i < 32; ++i) words[i] = i + (unsigned)number;
  if (setjmp(start) == 0) return;
  int bad = 0;
  for (unsigned i = 0; i < 32; ++i) bad += words[i] != i + SIGUSR1;
  printf("bad %d\n", bad);
  longjmp(back, 1);
}

int main(void) {
  const stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536}, off = {.ss_flags = SS_DISABLE};
  sigaltstack(&stack, NULL);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = enter;
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR1, &action, NULL);
  raise(SIGUSR1);
  probed(1);
  sigaltstack(&off, NULL);
  if (setjmp(back) == 0) longjmp(start, 1);
  return 3;
}
