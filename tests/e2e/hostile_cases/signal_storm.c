// SPDX-License-Identifier: MIT
// Six kinds of signals on four threads that hit all the time: every hit counts once.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>
__attribute__((noinline)) long probed(long n) { __asm__ volatile("lea 1(%0), %0" : "+r"(n)); return n; }
static atomic_long handled;
static __thread volatile int depth;
static void handle(int number) { if (++depth < 12) ++handled; --depth; (void)number; }
static void* work(void* arg) {
  timer_t timers[6];
  for (int i = 0; i < 6; ++i) {
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGRTMIN + i;
    event._sigev_un._tid = syscall(SYS_gettid);
    timer_create(CLOCK_MONOTONIC, &event, &timers[i]);
    const struct itimerspec pace = {{0, 300000 + 37000 * i}, {0, 300000 + 37000 * i}};
    timer_settime(timers[i], 0, &pace, NULL);
  }
  long n = 0;
  while (n < 15000) n = probed(n);
  for (int i = 0; i < 6; ++i) timer_delete(timers[i]);
  return arg;
}
int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  for (int i = 0; i < 6; ++i) sigaction(SIGRTMIN + i, &action, NULL);
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, work, NULL);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  fprintf(stderr, "%ld handled\n", (long)handled);
  puts("end");
  return 0;
}
