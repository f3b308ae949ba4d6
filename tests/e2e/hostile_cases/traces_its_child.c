// SPDX-License-Identifier: MIT
// A debugger in the traced tree: between PTRACE_TRACEME and execve its child runs probed code (execve itself, for one), and
// each breakpoint there is a stop that goes to the debugger, which takes it for the one at the end of execve.
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) int probed(int value) {
  __asm__ volatile("");
  return value + 1;
}

int main(void) {
  const pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    execl("/bin/true", "true", (char*)0);
    _exit(9);
  }
  int status = 0, stops = 0;
  while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
    const int signal = WSTOPSIG(status);
    ++stops;
    ptrace(PTRACE_CONT, child, 0, signal == SIGTRAP ? 0 : signal);
  }
  printf("%d stops, status %#x, %d\n", stops, status, probed(1));
}
