// SPDX-License-Identifier: MIT
// A process of another PID namespace calls execve: its process numbers mean other processes outside, which must be
// left alone. Run it in a namespace whose first processes belong to the test.
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }

static int is_traced(int pid) {
  char path[64], line[256];
  int tracer = 0;
  snprintf(path, sizeof path, "/proc/%d/status", pid);
  FILE* file = fopen(path, "r");
  if (file == NULL) return 0;
  while (fgets(line, sizeof line, file) != NULL) sscanf(line, "TracerPid: %d", &tracer);
  fclose(file);
  return tracer != 0;
}

int main(void) {
  int to[2], from[2];
  char byte = 'x';
  if (pipe(to) != 0 || pipe(from) != 0 || unshare(CLONE_NEWPID) != 0) return 2;
  const pid_t child = fork();
  if (child == 0) {
    probed(1);
    dup2(to[0], 0);
    dup2(from[1], 1);
    close(to[1]);
    execl("/bin/cat", "cat", (char*)0);
    _exit(9);
  }
  close(to[0]);
  if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1) return 3;  // now cat runs
  int traced = 0;
  for (int pid = 1; pid < 4; ++pid) traced += is_traced(pid);
  close(to[1]);
  int status = 0;
  waitpid(child, &status, 0);
  printf("traced %d status %x\n", traced, status);
  return 0;
}
