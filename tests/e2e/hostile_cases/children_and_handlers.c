// SPDX-License-Identifier: MIT
// A child's changes to its handlers affect only the child, and a signal that waits for the parent does not wait for the child.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }

static char* page;
static void mend(int number) {
  probed(number);
  mprotect(page, 4096, PROT_READ | PROT_WRITE);
}
static void handle(int number) { probed(number); }

int main(void) {
  setvbuf(stdout, NULL, _IOFBF, 4096);
  signal(SIGSEGV, mend);
  signal(SIGTRAP, handle);
  page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  printf("system %d\n", WEXITSTATUS(system("exit 3")));
  struct sigaction now;
  sigaction(SIGSEGV, NULL, &now);
  printf("handler %d\n", now.sa_handler == mend);
  *(volatile char*)page = 1;
  sigset_t mask, pending;
  sigemptyset(&mask);
  sigaddset(&mask, SIGTRAP);
  sigprocmask(SIG_BLOCK, &mask, NULL);
  raise(SIGTRAP);
  fflush(stdout);
  if (fork() == 0) {
    sigpending(&pending);
    printf("in the child %d\n", sigismember(&pending, SIGTRAP));
    sigprocmask(SIG_UNBLOCK, &mask, NULL);
    fflush(stdout);
    _exit(0);
  }
  wait(NULL);
  sigpending(&pending);
  printf("in the parent %d\n", sigismember(&pending, SIGTRAP));
  sigprocmask(SIG_UNBLOCK, &mask, NULL);
  return 0;
}
