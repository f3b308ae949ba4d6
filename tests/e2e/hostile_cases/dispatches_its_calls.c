// SPDX-License-Identifier: MIT
// Syscall User Dispatch, as Wine uses it: while the selector says so, a system call that is made anywhere in the process is SIGSYS. Ends at the
// end of its input; exit code 77: the kernel does not have it.
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { kSetDispatch = 59, kOn = 1, kAllow = 0, kBlock = 1 };
static volatile char selector = kAllow;

__attribute__((noinline)) long probed(long value) {
  __asm__ volatile("");
  return value + 1;
}

int main(void) {
  if (prctl(kSetDispatch, kOn, 0UL, 0UL, &selector) != 0) return 77;
  if (write(STDOUT_FILENO, "ready\n", 6) != 6) return 1;
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
  do {
    selector = kBlock;
    for (long i = 0; i < 3000000; ++i) probed(i);
    selector = kAllow;
  } while (poll(&input, 1, 0) == 0);
  return 0;
}
