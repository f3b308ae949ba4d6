// SPDX-License-Identifier: MIT
// A child that asks to be traced and lives on: its masks, handlers and pending signals are those that it has set, and its
// tracer sees each signal once.
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) int probed(int value) {
  __asm__ volatile("");
  return value + 1;
}

static volatile sig_atomic_t traps;
static void on_trap(int signal) { traps += signal == SIGTRAP; }

static int run_child(void) {
  sigset_t set, seen;
  struct sigaction action;
  sigemptyset(&set);
  sigaddset(&set, SIGTRAP);
  signal(SIGTRAP, on_trap);
  sigprocmask(SIG_BLOCK, &set, 0);
  raise(SIGTRAP);
  if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) return 1;
  if (ptrace(PTRACE_TRACEME, 0, 0, 0) == 0) return 2;
  sigprocmask(SIG_BLOCK, 0, &seen);
  if (!sigismember(&seen, SIGTRAP)) return 3;
  sigpending(&seen);
  if (!sigismember(&seen, SIGTRAP) || traps != 0) return 4;
  sigaction(SIGSEGV, 0, &action);
  if (action.sa_handler != SIG_DFL) return 5;
  sigaction(SIGTRAP, 0, &action);
  if (action.sa_handler != on_trap) return 6;
  sigprocmask(SIG_UNBLOCK, &set, 0);
  if (traps != 1) return 7;
  for (int i = 0; i < 100; ++i) probed(i);
  const pid_t grandchild = fork();
  if (grandchild == 0) _exit(probed(2));
  int status = 0;
  if (waitpid(grandchild, &status, 0) != grandchild || status != 3 << 8) return 8;
  *(volatile int*)8 = 1;
  return 9;
}

int main(void) {
  const pid_t child = fork();
  if (child == 0) _exit(run_child());
  int status = 0;
  while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
    siginfo_t info;
    ptrace(PTRACE_GETSIGINFO, child, 0, &info);
    printf("stop %d, code %d\n", WSTOPSIG(status), info.si_code);
    ptrace(PTRACE_CONT, child, 0, WSTOPSIG(status));
  }
  printf("status %#x, %d\n", status & 0x7f ? status & 0x7f : status, probed(1));
}
