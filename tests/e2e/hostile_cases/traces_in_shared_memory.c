// SPDX-License-Identifier: MIT
// A child in its parent's memory whose parent does not wait for its execve: the parent sees the child stop before that.
#define _GNU_SOURCE
#include <sched.h>
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

static char stack[256 * 1024] __attribute__((aligned(16)));

static int run_child(void* unused) {
  (void)unused;
  if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) return 8;
  kill((pid_t)syscall(SYS_getpid), SIGSTOP);
  for (int i = 0; i < 100; ++i) probed(i);
  return 5;
}

int main(void) {
  probed(1);
  const pid_t child = clone(run_child, stack + sizeof stack, CLONE_VM | SIGCHLD, 0);
  int status = 0, stops = 0;
  while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
    const int signal = WSTOPSIG(status);
    printf("stop %d\n", signal);
    if (++stops == 10) kill(child, SIGKILL);
    ptrace(PTRACE_CONT, child, 0, signal == SIGSTOP || signal == SIGTRAP ? 0 : signal);
  }
  printf("%d stops, status %#x, %d\n", stops, status, probed(1));
}
