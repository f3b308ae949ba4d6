// SPDX-License-Identifier: MIT
// Handlers that leave by siglongjmp leave nothing that changes the counts of later hits.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
__attribute__((noinline)) void probed(void) { __asm__ volatile("nop"); }
__attribute__((noinline)) void counted(int n) { __asm__ volatile("" ::"r"(n)); }
static sigjmp_buf out;
static volatile int jumps, stays, leave = 1;
static void handle(int number) {
  (void)number;
  if (!leave) { ++stays; return; }
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
  while (jumps < 3000) probed();
  leave = 0;
  for (int i = 0; i < 100000; ++i) counted(i);
  setitimer(ITIMER_REAL, &off, NULL);
  puts("end");
  return 0;
}
