// SPDX-License-Identifier: MIT
// A thread waits for a signal that all threads have blocked; it is sent to the process, whose first thread is busy.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }

static void* wait_for(void* data) {
  const sigset_t* set = data;
  int number = 0;
  probed(1);
  sigwait(set, &number);
  probed(2);
  printf("waited for %d\n", number);
  return NULL;
}

static void check(int number) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  sigprocmask(SIG_BLOCK, &set, NULL);
  pthread_t thread;
  pthread_create(&thread, NULL, wait_for, &set);
  usleep(50000);
  kill(getpid(), number);
  pthread_join(thread, NULL);
}

int main(void) {
  check(SIGTRAP);
  check(SIGSEGV);
  return 0;
}
