// SPDX-License-Identifier: MIT
// Signals that the program has blocked are read from a descriptor.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <unistd.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }

static void check(int number) {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, number);
  sigprocmask(SIG_BLOCK, &mask, NULL);
  probed(number);
  const int fd = signalfd(-1, &mask, SFD_NONBLOCK);
  struct signalfd_siginfo info = {0};
  raise(number);
  printf("%d: read %d\n", number, read(fd, &info, sizeof info) > 0 ? (int)info.ssi_signo : -1);
  close(fd);
}

int main(void) {
  const int numbers[] = {SIGTRAP, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; ++i) check(numbers[i]);
  return 0;
}
