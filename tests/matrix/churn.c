// SPDX-License-Identifier: MIT
// Begins threads without end, two at a time: each beginning blocks all signals for a moment. Prints `begun`, and in the end `threads
// ended` and exits with 7. churn COUNT: so many threads; churn lines: until it has got a line.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long wanted, failed;
static volatile int stop;

__attribute__((noinline)) unsigned long take_number(unsigned long n) {
  __asm__ volatile("" : "+r"(n));
  return n + 1;
}

// As a program does that keeps a signal from its helpers.
static void* short_life(void* number) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  take_number((unsigned long)number);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return number;
}

static void* begin_threads(void* unused) {
  for (long i = 0; !stop && (wanted == 0 || i < wanted); ++i) {
    pthread_t thread;
    void* result = NULL;
    if (pthread_create(&thread, NULL, short_life, (void*)i) != 0 || pthread_join(thread, &result) != 0 ||
        result != (void*)i)
      __atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED);
  }
  return unused;
}

int main(int count, char** words) {
  pthread_t makers[2];
  char line;
  wanted = count > 1 ? atol(words[1]) : 0;
  setbuf(stdout, NULL);
  puts("begun");
  for (int i = 0; i < 2; ++i) pthread_create(&makers[i], NULL, begin_threads, NULL);
  if (wanted == 0 && read(0, &line, 1) < 0) failed = 1;
  if (wanted == 0) stop = 1;
  for (int i = 0; i < 2; ++i) pthread_join(makers[i], NULL);
  puts(failed == 0 ? "threads ended" : "threads failed");
  return 7;
}
