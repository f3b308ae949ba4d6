// SPDX-License-Identifier: MIT
// A handler of an asynchronous signal looks at the number of the thread's last trap.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>

// No jump fits: the second instruction is a branch's target.
void probed(long times);
__asm__(
    ".text\n.globl probed\n.type probed, @function\n"
    "probed: nop\n1: dec %rdi\n jnz 1b\n ret\n.size probed, . - probed\n");

static long long number = -1;

static void note(int signal, siginfo_t* info, void* context) {
  (void)signal, (void)info;
  number = ((ucontext_t*)context)->uc_mcontext.gregs[REG_TRAPNO];
}

int main(void) {
  struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
  sigaction(SIGUSR1, &action, NULL);
  probed(3);
  raise(SIGUSR1);
  printf("trap %lld\n", number);
  return 0;
}
