// SPDX-License-Identifier: MIT
// A debugger in the traced tree attaches to children at random moments of their work, steps each a hundred times, passes the signals
// on that it sees, and lets go: each child goes on, with right results, and sees no other signal.
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kChildren = 60, kSteps = 100 };
static volatile unsigned* rounds;

__attribute__((noinline)) unsigned scramble(unsigned value) { return value * 2654435761u + 7; }

__attribute__((noinline)) unsigned mix(unsigned value) {
  unsigned result = 0;
  for (unsigned i = 0; i < 10; ++i) result ^= scramble(value + i) + (result << 3);
  return result;
}

static void work(void) {
  const unsigned expected = mix(7);
  alarm(60);
  for (;; ++*rounds)
    if (mix(7) != expected) _exit(9);
}

// The stop after which the child may be let go; a status that is none where it has ended. `signals`: those that were not asked for.
static int step(pid_t child, int* signals) {
  int status = 0, signal = 0;
  while (waitpid(child, &status, 0) == child && WIFSTOPPED(status) && WSTOPSIG(status) != SIGSTOP)
    ++*signals, ptrace(PTRACE_CONT, child, 0, (long)WSTOPSIG(status));
  for (int i = 0; i < kSteps && WIFSTOPPED(status); ++i) {
    siginfo_t info;
    ptrace(PTRACE_SINGLESTEP, child, 0, (long)signal);
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) break;
    ptrace(PTRACE_GETSIGINFO, child, 0, &info);
    signal = WSTOPSIG(status) == SIGTRAP && info.si_code != SI_KERNEL ? 0 : WSTOPSIG(status);
    *signals += signal != 0;
  }
  if (WIFSTOPPED(status)) ptrace(PTRACE_DETACH, child, 0, (long)signal);
  return status;
}

static int goes_on(void) {
  const unsigned before = *rounds;
  for (int i = 0; i < 2000 && *rounds < before + 5; ++i) usleep(5000);
  return *rounds >= before + 5;
}

int main(void) {
  int gone = 0, signals = 0, status = 0;
  rounds = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < kChildren; ++i) {
    const pid_t child = fork();
    if (child == 0) work();
    usleep(2000 + i * 37);
    ptrace(PTRACE_ATTACH, child, 0, 0);
    const int is_there = WIFSTOPPED(step(child, &signals)) && goes_on();
    gone += !is_there;
    kill(child, SIGKILL);
    if (is_there) waitpid(child, &status, 0);
  }
  printf("%d have not gone on, %d signals\n", gone, signals);
  return 0;
}
