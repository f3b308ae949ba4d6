// SPDX-License-Identifier: MIT
// A program that ends while signals come too fast to wait between them.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }
static void handle(int number) { probed(number); }

int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, NULL);
  action.sa_flags = SA_RESTART | SA_NODEFER;
  sigaction(SIGVTALRM, &action, NULL);
  const struct itimerval fast = {{0, 50}, {0, 50}};
  setitimer(ITIMER_REAL, &fast, NULL);
  setitimer(ITIMER_VIRTUAL, &fast, NULL);
  for (int i = 0; i < 1000; ++i) probed(i);
  puts("end");
  return 0;
}
