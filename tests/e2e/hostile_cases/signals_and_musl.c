// SPDX-License-Identifier: MIT
// The usual operations of programs on signals, in musl (whose libc gives most of its functions no symbol).
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }

static void handle(int number) { probed(number); }
static void* thread(void* unused) {
  probed(1);
  return unused;
}

int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  sigfillset(&action.sa_mask);
  sigaction(SIGUSR1, &action, NULL);
  raise(SIGUSR1);
  sigset_t mask;
  sigfillset(&mask);
  sigprocmask(SIG_SETMASK, &mask, NULL);
  probed(2);
  sigemptyset(&mask);
  sigprocmask(SIG_SETMASK, &mask, NULL);
  pthread_t other;
  pthread_create(&other, NULL, thread, NULL);
  pthread_join(other, NULL);
  sigaddset(&mask, SIGUSR1);
  sigprocmask(SIG_BLOCK, &mask, NULL);
  raise(SIGUSR1);
  sigfillset(&mask);
  sigdelset(&mask, SIGUSR1);
  sigsuspend(&mask);
  sigprocmask(SIG_SETMASK, &mask, NULL);
  sigemptyset(&mask);
  sigprocmask(SIG_SETMASK, &mask, NULL);
  sigaction(SIGTRAP, &action, NULL);
  probed(3);
  raise(SIGTRAP);
  puts("end");
  return 0;
}
