// SPDX-License-Identifier: MIT
// A traced program attaches to others, by the id of a process and of a thread: these stop only for their own actions, before
// and after it lets go, and the libraries that they load later stay unprobed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) int probed(int value) {
  __asm__ volatile("");
  return value + 1;
}

static int ids[2], orders[2];

static void* run_thread(void* unused) {
  const pid_t id = (pid_t)syscall(SYS_gettid);
  char order = 0;
  (void)!write(ids[1], &id, sizeof id);
  while (read(orders[0], &order, 1) == 1 && order != 'q') {
    for (int i = 0; i < 100; ++i) probed(i);
    void* library = dlopen("libm.so.6", RTLD_NOW);
    if (library != 0) dlclose(library);
    raise(SIGUSR1);
  }
  return unused;
}

static int run_child(void) {
  pthread_t thread;
  signal(SIGUSR1, SIG_IGN);
  pthread_create(&thread, 0, run_thread, 0);
  pthread_join(thread, 0);
  return probed(2);
}

static void attach_to(int request, int by_thread) {
  pid_t id = 0;
  pipe(ids), pipe(orders);
  const pid_t child = fork();
  if (child == 0) _exit(run_child());
  (void)!read(ids[0], &id, sizeof id);
  const pid_t tracee = by_thread ? id : child;
  long result = ptrace(request, tracee, 0, 0);
  if (request == PTRACE_SEIZE) result += ptrace(PTRACE_INTERRUPT, tracee, 0, 0);
  int status = 0;
  waitpid(tracee, &status, __WALL);
  printf("%ld, stop %#x\n", result, status);
  ptrace(PTRACE_CONT, tracee, 0, 0);
  (void)!write(orders[1], "r", 1);
  if (by_thread) {
    waitpid(tracee, &status, __WALL);
    printf("stop %#x\n", status);
    ptrace(PTRACE_DETACH, tracee, 0, 0);
  }
  (void)!write(orders[1], "rq", 2);
  while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
    printf("stop %#x\n", status);
    ptrace(PTRACE_CONT, child, 0, WSTOPSIG(status));
  }
  printf("status %#x\n", status);
  for (int i = 0; i < 2; ++i) close(ids[i]), close(orders[i]);
}

int main(void) {
  setbuf(stdout, 0);
  for (int by_thread = 0; by_thread < 2; ++by_thread) {
    attach_to(PTRACE_ATTACH, by_thread);
    attach_to(PTRACE_SEIZE, by_thread);
  }
  for (int i = 0; i < 2; ++i) {
    const long result = ptrace(PTRACE_ATTACH, i == 0 ? 0x7ffffff0 : -1, 0, 0);
    printf("%ld, errno %d\n", result, errno);
  }
  return probed(1) - 2;
}
