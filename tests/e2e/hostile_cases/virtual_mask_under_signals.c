// SPDX-License-Identifier: MIT
// The program's mask and alternate stack stay as it has set them through thousands of handlers.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
__attribute__((noinline)) void probed(long n) { __asm__ volatile("" ::"r"(n)); }
static volatile int ran;
static void handle(int number) { (void)number; ++ran; }
static void install(int number, int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  action.sa_flags = flags | SA_RESTART;
  sigaction(number, &action, NULL);
}
int main(void) {
  const stack_t mine = {.ss_sp = malloc(65536), .ss_size = 65536};
  sigaltstack(&mine, NULL);
  sigset_t mask, now;
  sigemptyset(&mask);
  sigaddset(&mask, SIGTRAP);
  sigprocmask(SIG_BLOCK, &mask, NULL);
  install(SIGALRM, 0);
  install(SIGVTALRM, SA_ONSTACK);
  const struct itimerval fast = {{0, 50}, {0, 50}};
  setitimer(ITIMER_REAL, &fast, NULL);
  setitimer(ITIMER_VIRTUAL, &fast, NULL);
  int wrong_mask = 0, wrong_stack = 0;
  stack_t seen;
  for (long i = 0; ran < 5000; ++i) {
    probed(i);
    if (i % 16 != 0) continue;
    raise(SIGVTALRM);
    sigprocmask(SIG_BLOCK, NULL, &now);
    wrong_mask += !sigismember(&now, SIGTRAP);
    sigaltstack(NULL, &seen);
    wrong_stack += seen.ss_sp != mine.ss_sp || seen.ss_size != mine.ss_size;
  }
  printf("wrong masks %d, stacks %d\n", wrong_mask, wrong_stack);
  return 0;
}
