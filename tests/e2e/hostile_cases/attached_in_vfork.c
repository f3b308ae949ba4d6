// SPDX-License-Identifier: MIT
// A debugger in the traced tree attaches to its child, which always has a child of vfork in its memory, or is about to. It passes no
// SIGTRAP on, as debuggers do: a breakpoint of another tool would end the child, or keep it from a system call.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) int probed(int value) {
  __asm__ volatile("");
  return value * 3 + 1;
}

static int work(void) {
  for (int i = 0; i < 40; ++i) {
    const pid_t child = vfork();
    if (child == 0) {
      usleep(20000);
      execl("/bin/true", "true", (char*)0);
      _exit(1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    for (int k = 0; k < 50; ++k) {
      sigprocmask(SIG_BLOCK, &mask, 0), sigprocmask(SIG_UNBLOCK, &mask, 0);
      munmap(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
    }
    if (probed(i) != i * 3 + 1 || status != 0) return 9;
  }
  return 7;
}

int main(void) {
  int status = 0, traps = 0;
  const pid_t child = fork();
  if (child == 0) _exit(work());
  usleep(300000);
  const long result = ptrace(PTRACE_ATTACH, child, 0, 0);
  while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
    const int signal = WSTOPSIG(status);
    traps += signal == SIGTRAP || signal == SIGSEGV;
    ptrace(PTRACE_CONT, child, 0, (long)(signal == SIGTRAP || signal == SIGSTOP ? 0 : signal));
  }
  printf("%ld, %d traps, status %#x\n", result, traps, status);
  return 0;
}
