// SPDX-License-Identifier: MIT
// A handler on the alternate stack switches to another stack (user-level fault handlers, coroutines): its data on the alternate
// stack must be there when it comes back.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }

static ucontext_t handler_context, work_context;
static char work_stack[65536];
static int bad;

static void work(void) {
  for (int i = 0; i < 5; ++i) probed(i);
  swapcontext(&work_context, &handler_context);
}

static void handle(int number) {
  volatile unsigned long words[128];
  for (unsigned i = 0; i < 128; ++i) words[i] = i * 3 + (unsigned)number;
  static volatile int rounds;
  if (rounds++ != 0) _Exit(5);
  swapcontext(&handler_context, &work_context);
  for (unsigned i = 0; i < 128; ++i) bad += words[i] != i * 3 + (unsigned)number;
  printf("bad %d\n", bad);
  fflush(stdout);
  _Exit(bad != 0);
}

int main(void) {
  const stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
  sigaltstack(&stack, NULL);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR1, &action, NULL);
  getcontext(&work_context);
  work_context.uc_stack.ss_sp = work_stack;
  work_context.uc_stack.ss_size = sizeof work_stack;
  makecontext(&work_context, work, 0);
  raise(SIGUSR1);
  return 6;
}
