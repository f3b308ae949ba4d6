// SPDX-License-Identifier: MIT
// execve fails again and again while the process is stopped and continued.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }

int main(void) {
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 300; ++i) {
      probed(i);
      execl("/nonexistent", "x", (char*)0);
    }
    _exit(4);
  }
  for (int i = 0; i < 1500; ++i) {
    kill(child, SIGSTOP);
    usleep(i * 7 % 300);
    kill(child, SIGCONT);
    usleep(i * 11 % 500);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("status %x\n", status);
  return 0;
}
