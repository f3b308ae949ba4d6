// SPDX-License-Identifier: MIT
// A handler changes the mask that its return puts in force.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }

static void handle(int number, siginfo_t* info, void* data) {
  (void)number, (void)info;
  ucontext_t* context = data;
  sigfillset(&context->uc_sigmask);
  probed(0);
}

int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGUSR1, &action, NULL);
  raise(SIGUSR1);
  probed(1);
  sigset_t mask;
  sigprocmask(SIG_BLOCK, NULL, &mask);
  printf("usr2 %d trap %d segv %d\n", sigismember(&mask, SIGUSR2), sigismember(&mask, SIGTRAP),
         sigismember(&mask, SIGSEGV));
  return 0;
}
