// SPDX-License-Identifier: MIT
// A debugger's launcher: the child asks to be traced in its parent's memory, where the parent's probes are, and its stops
// go to the debugger. A name that cannot be executed first leaves a traced child in that memory for a while.
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) int probed(int value) {
  __asm__ volatile("");
  return value + 1;
}

static void launch(const char* first, const char* second) {
  volatile long asked[2];
  const pid_t child = vfork();
  if (child == 0) {
    asked[0] = ptrace(PTRACE_TRACEME, 0, 0, 0);
    probed(2);
    execl(first, "true", (char*)0);
    probed(3);
    execl(second, "true", (char*)0);
    _exit(9);
  }
  int status = 0, stops = 0;
  while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
    const int signal = WSTOPSIG(status);
    ++stops;
    ptrace(PTRACE_CONT, child, 0, signal == SIGTRAP ? 0 : signal);
  }
  printf("%ld, %d stops, status %#x\n", asked[0], stops, status);
}

int main(void) {
  launch("/bin/true", "/bin/false");
  probed(1);  // still probed: the request came when only the execve was left
  launch("/nowhere/true", "/bin/true");
  printf("%d\n", probed(1));  // unprobed: the parent's text was that of a traced child
  launch("/bin/false", "/bin/true");
}
