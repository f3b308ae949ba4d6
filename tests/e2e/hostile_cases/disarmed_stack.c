// SPDX-License-Identifier: MIT
// SS_AUTODISARM: nested handlers, the stack rearmed by rt_sigreturn.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif
__attribute__((noinline)) void probed(long n) { __asm__ volatile("" ::"r"(n)); }
static char* base;
static volatile long off, ran;
static void handle(int n) { char here; (void)n; ++ran; if (&here < base || &here > base + 65536) ++off; probed(n); if (n != SIGALRM) for (volatile int i = 0; i < 300; ++i); }
int main(void) {
  base = malloc(65536);
  stack_t s = {.ss_sp = base, .ss_size = 65536, .ss_flags = (int)SS_AUTODISARM}; 
  if (sigaltstack(&s, NULL)) return 1;
  struct sigaction a; memset(&a, 0, sizeof a); a.sa_handler = handle; a.sa_flags = SA_ONSTACK | SA_RESTART;
  sigaction(SIGALRM, &a, NULL); sigaction(SIGVTALRM, &a, NULL); sigaction(SIGUSR1, &a, NULL);
  const struct itimerval fast = {{0, 60}, {0, 60}}; setitimer(ITIMER_REAL, &fast, NULL); setitimer(ITIMER_VIRTUAL, &fast, NULL);
  long lost = 0;
  for (int i = 0; i < 5000; ++i) { probed(i); raise(SIGUSR1); stack_t now; sigaltstack(NULL, &now); if (now.ss_sp != base || (now.ss_flags != (int)SS_AUTODISARM)) ++lost; }
  printf("off %ld lost %ld\n", off, lost);
  return 0;
}
