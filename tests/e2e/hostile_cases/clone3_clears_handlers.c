// SPDX-License-Identifier: MIT
// A child made with CLONE_CLEAR_SIGHAND, as posix_spawn does since glibc 2.38.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }

int main(void) {
  uint64_t arguments[8] = {0x100000000ull /* CLONE_CLEAR_SIGHAND */, 0, 0, 0, SIGCHLD, 0, 0, 0};
  const long child = syscall(SYS_clone3, arguments, sizeof arguments);
  if (child == 0) {
    probed(1);
    _exit(5);
  }
  int status = 0;
  waitpid((pid_t)child, &status, 0);
  printf("status %x\n", status);
  return 0;
}
