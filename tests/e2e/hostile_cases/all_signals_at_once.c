// SPDX-License-Identifier: MIT
// All kinds of signals arrive at once.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
__attribute__((noinline)) void probed(long n) { __asm__ volatile("" ::"r"(n)); }
static volatile int ran[65];
static void handle(int number) { probed(number); ++ran[number]; }
int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  int all_ran = 0, installed = 0;
  for (int n = 1; n <= 64; ++n)
    if (sigaction(n, &action, NULL) == 0) ++installed;
  for (int round = 0; round < 20; ++round) {
    sigprocmask(SIG_SETMASK, &all, NULL);
    for (int n = 1; n <= 64; ++n)
      if (n != SIGKILL && n != SIGSTOP && (n < 32 || n > 34)) raise(n);
    probed(0);
    sigprocmask(SIG_SETMASK, &none, NULL);
  }
  for (int n = 1; n <= 64; ++n) all_ran += ran[n];
  printf("installed %d ran %d\n", installed, all_ran);
  return 0;
}
