// SPDX-License-Identifier: MIT
// Threads come and go with alternate stacks (as Rust's std does), signals in between; some exit from a handler, others are cancelled.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>
enum { kRounds = 250, kAtOnce = 4 };
__attribute__((noinline)) long probed(long n) { __asm__ volatile("" : "+r"(n)); return n + 1; }
static long bads, handled, b[5];
static __thread int finish;
// By a signal alone: the handler may interrupt a cancelled thread that holds the dynamic linker's lock, and leave it held.
static void end_by_handler(pthread_t thread) {
  while (pthread_tryjoin_np(thread, NULL) == EBUSY) { pthread_kill(thread, SIGUSR2); usleep(100); }
}
static void handle(int n, siginfo_t* i, void* c) {
  (void)i; (void)c;
  char here; stack_t s;
  sigaltstack(NULL, &s);
  __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
  if (n == SIGUSR1 && finish) {
    if (s.ss_flags != SS_ONSTACK || &here < (char*)s.ss_sp || &here >= (char*)s.ss_sp + s.ss_size) __atomic_fetch_add(&b[0], 1, __ATOMIC_RELAXED);
  }
  probed(n);
  if (n == SIGUSR2 && finish) pthread_exit(NULL);
}
static void* body(void* arg) {
  const long me = (long)arg;
  stack_t old;
  sigaltstack(NULL, &old);
  if (old.ss_flags != SS_DISABLE || old.ss_sp != NULL || old.ss_size != 0) __atomic_fetch_add(&b[1], 1, __ATOMIC_RELAXED);
  sigset_t now; pthread_sigmask(SIG_BLOCK, NULL, &now);
  if (sigismember(&now, SIGSEGV)) ++b[3]; if (sigismember(&now, SIGTRAP) != (int)(me & 1)) __atomic_fetch_add(&b[2], 1, __ATOMIC_RELAXED);
  char* m = mmap(NULL, 16384 + 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(m, 4096, PROT_NONE);
  stack_t s = {.ss_sp = m + 4096, .ss_size = 16384}, off = {.ss_flags = SS_DISABLE};
  sigaltstack(&s, NULL);
  finish = 1;
  for (int i = 0; i < 20; ++i) probed(i);
  if (me % 3 == 0) for (;;) { probed(1); if (me % 2) pthread_testcancel(); else usleep(10); }
  finish = 0;
  sigaltstack(&off, NULL);
  munmap(m, 16384 + 4096);
  probed(2);
  return NULL;
}
int main(void) {
  struct sigaction a; memset(&a, 0, sizeof a);
  a.sa_sigaction = handle; a.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigaction(SIGUSR1, &a, NULL); sigaction(SIGUSR2, &a, NULL); a.sa_flags &= ~SA_ONSTACK; sigaction(SIGALRM, &a, NULL);
  const struct itimerval fast = {{0, 200}, {0, 200}};
  setitimer(ITIMER_REAL, &fast, NULL);
  sigset_t trap; sigemptyset(&trap); sigaddset(&trap, SIGTRAP);
  for (long r = 0; r < kRounds; ++r) {
    pthread_t t[kAtOnce];
    pthread_attr_t at; pthread_attr_init(&at); pthread_attr_setstacksize(&at, 65536 + (r % 7) * 65536);
    pthread_sigmask(r & 1 ? SIG_BLOCK : SIG_UNBLOCK, &trap, NULL);
    for (int i = 0; i < kAtOnce; ++i) pthread_create(&t[i], &at, body, (void*)(r + i * 2));
    for (int i = 0; i < kAtOnce; ++i) pthread_kill(t[i], SIGUSR1);
    for (int i = 0; i < kAtOnce; ++i) if ((r + i * 2) % 3 == 0) { pthread_kill(t[i], SIGUSR1); if (r % 5 == 0) end_by_handler(t[i]); else pthread_cancel(t[i]); }
    for (int i = 0; i < kAtOnce; ++i) if ((r + i * 2) % 3 != 0 || r % 5 != 0) pthread_join(t[i], NULL);
  }
  printf("handler stack %ld start stack %ld start trap %ld start segv %ld\n", b[0],b[1],b[2],b[3]);
  return 0;
}
