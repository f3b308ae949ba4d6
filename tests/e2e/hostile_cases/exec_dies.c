// SPDX-License-Identifier: MIT
// An execve that fails after the point of no return: the kernel kills the process, its parent reaps it.
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }

int main(void) {
  const pid_t child = fork();
  if (child == 0) {
    probed(1);
    const struct rlimit limit = {1 << 16, 1 << 16};
    setrlimit(RLIMIT_AS, &limit);
    execl("/bin/true", "true", (char*)0);
    _exit(9);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("status %x\n", status);
  return 0;
}
