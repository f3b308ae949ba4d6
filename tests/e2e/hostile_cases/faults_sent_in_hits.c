// SPDX-License-Identifier: MIT
// SIGSEGV and SIGBUS sent while a hit reads what cannot be read.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) void probed(const char* p) { __asm__ volatile("" ::"r"(p)); }
static volatile int ran;
static void handle(int number) { (void)number; ++ran; }
int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  sigaction(SIGSEGV, &action, NULL);
  sigaction(SIGBUS, &action, NULL);
  const pid_t me = getpid();
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 8000; ++i) { kill(me, i % 2 ? SIGSEGV : SIGBUS); if (i % 16 == 0) usleep(1); }
    _exit(0);
  }
  while (waitpid(child, NULL, WNOHANG) == 0) for (int i = 0; i < 100; ++i) probed((const char*)8);
  puts(ran > 0 ? "ran" : "never");
  return 0;
}
