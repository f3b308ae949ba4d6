// SPDX-License-Identifier: MIT
// A fast timer's handlers leave by siglongjmp from any place, also from the middle of a hit: no ring may stay claimed.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }
__attribute__((noinline)) void counted(int n) { __asm__ volatile("" ::"r"(n)); }
static sigjmp_buf out;
static volatile int jumps;

static void handle(int number) {
  (void)number;
  ++jumps;
  siglongjmp(out, 1);
}

int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  sigaction(SIGALRM, &action, NULL);
  const struct itimerval fast = {{0, 100}, {0, 100}}, off = {{0, 0}, {0, 0}};
  sigsetjmp(out, 1);
  if (jumps == 0) setitimer(ITIMER_REAL, &fast, NULL);
  while (jumps < 3000) probed(1);
  setitimer(ITIMER_REAL, &off, NULL);
  for (int i = 0; i < 100; ++i) counted(i);
  puts("end");
  return 0;
}
