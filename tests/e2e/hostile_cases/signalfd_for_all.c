// SPDX-License-Identifier: MIT
// A program that reads all its signals from a descriptor, and is sent some that do not concern the agent.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <unistd.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }

int main(void) {
  sigset_t mask;
  sigfillset(&mask);
  sigprocmask(SIG_SETMASK, &mask, NULL);
  const int fd = signalfd(-1, &mask, SFD_NONBLOCK);
  const int numbers[] = {SIGUSR1, SIGILL, SIGFPE, SIGRTMAX};
  for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; ++i) {
    struct signalfd_siginfo info = {0};
    probed(numbers[i]);
    raise(numbers[i]);
    printf("%d: read %d\n", numbers[i], read(fd, &info, sizeof info) > 0 ? (int)info.ssi_signo : -1);
  }
  return 0;
}
