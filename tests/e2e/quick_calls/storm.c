// SPDX-License-Identifier: MIT
// Threads block and unblock signals as fast as they can while timers send them: no handler runs between the two calls. storm SIGNALS:
// until each thread has had so many.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif
#ifdef SIGEV_THREAD_ID
#define THREAD_ID SIGEV_THREAD_ID
#else
#define THREAD_ID 4
#endif

enum { kThreads = 8 };

static __thread volatile sig_atomic_t is_blocked;
static __thread volatile long handled;
static long wanted, early, bad, changes;

static void handle(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  if (is_blocked) __atomic_fetch_add(&early, 1, __ATOMIC_RELAXED);
  ++handled;
}

static void start_timer(int number) {
  struct sigevent event;
  memset(&event, 0, sizeof event);
  event.sigev_notify = THREAD_ID;
  event.sigev_signo = number;
  event.sigev_notify_thread_id = (int)syscall(SYS_gettid);
  timer_t timer;
  const struct itimerspec often = {{0, 100000}, {0, 100000}};
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &often, NULL) != 0) exit(3);
}

static void* change(void* number) {
  long wrong = 0, count = 0;
  sigset_t ours, before, now;
  sigemptyset(&ours);
  sigaddset(&ours, SIGUSR1);
  sigaddset(&ours, SIGBUS);
  start_timer((int)(long)number);
  for (; handled < wanted; ++count) {
    wrong += pthread_sigmask(SIG_BLOCK, &ours, &before) != 0 || sigismember(&before, SIGUSR1);
    is_blocked = 1;
    wrong += pthread_sigmask(SIG_BLOCK, NULL, &now) != 0 || !sigismember(&now, SIGUSR1) || !sigismember(&now, SIGBUS);
    is_blocked = 0;
    wrong += pthread_sigmask(SIG_SETMASK, &before, &now) != 0 || !sigismember(&now, SIGBUS);
  }
  sigfillset(&ours);
  pthread_sigmask(SIG_BLOCK, &ours, NULL);
  __atomic_fetch_add(&bad, wrong, __ATOMIC_RELAXED);
  __atomic_fetch_add(&changes, count, __ATOMIC_RELAXED);
  return NULL;
}

int main(int count, char** words) {
  wanted = count > 1 ? atol(words[1]) : 1000;
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGUSR1, &action, NULL);
  sigaction(SIGBUS, &action, NULL);
  pthread_t threads[kThreads];
  for (long i = 0; i < kThreads; ++i)
    pthread_create(&threads[i], NULL, change, (void*)(long)(i % 3 == 0 ? SIGBUS : SIGUSR1));
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  printf("%ld early, %ld bad, %s\n", early, bad, changes > 0 ? "changed" : "unchanged");
  return early + bad == 0 ? 7 : 1;
}
