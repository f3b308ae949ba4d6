// SPDX-License-Identifier: MIT
// Signals and calls under more definitions at one address than a process block has room for by its number of points.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void handle(int number) { (void)number; }

int main(void) {
  getpid();
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  sigfillset(&action.sa_mask);
  sigaction(SIGUSR1, &action, NULL);
  raise(SIGUSR1);
  getpid();
  puts("end");
  return 3;
}
