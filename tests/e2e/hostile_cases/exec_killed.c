// SPDX-License-Identifier: MIT
// Children that are killed while they execve: their parent must be able to reap every one.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }

int main(void) {
  int reaped = 0;
  for (int i = 0; i < 150; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      probed(i);
      execl("/bin/true", "true", (char*)0);
      _exit(9);
    }
    usleep((i * 37) % 1500);
    kill(child, SIGKILL);
    int status = 0;
    reaped += waitpid(child, &status, 0) == child;
  }
  printf("reaped %d\n", reaped);
  return 0;
}
