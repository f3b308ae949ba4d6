// SPDX-License-Identifier: MIT
// Signals that the program has blocked stay pending until it asks for them.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <time.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }

static volatile int ran;
static void handle(int number) { ran = number; }

static void check(int number) {
  const struct timespec limit = {0, 100000000};
  sigset_t mask, pending;
  sigemptyset(&mask);
  sigaddset(&mask, number);
  sigprocmask(SIG_BLOCK, &mask, NULL);
  signal(number, handle);
  ran = 0;
  probed(number);
  raise(number);
  sigpending(&pending);
  printf("%d: ran %d pending %d", number, ran, sigismember(&pending, number));
  printf(" waited %d", sigtimedwait(&mask, NULL, &limit));
  raise(number);
  sigprocmask(SIG_UNBLOCK, &mask, NULL);
  printf(" ran %d\n", ran);
  signal(number, SIG_DFL);
}

int main(void) {
  const int numbers[] = {SIGTRAP, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; ++i) check(numbers[i]);
  return 0;
}
