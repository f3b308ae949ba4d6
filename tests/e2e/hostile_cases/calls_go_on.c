// SPDX-License-Identifier: MIT
// A read that a signal interrupts goes on where the signal has no handler, is blocked, or has one with SA_RESTART.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }
static void handle(int number) { probed(number); }

struct Way {
  const char* name;
  void (*handler)(int);
  int flags, blocked;
};

// The value of a line of the process's status file.
static const char* value_of(pid_t pid, const char* name) {
  static char line[256];
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/status", pid);
  FILE* status = fopen(path, "r");
  const char* found = NULL;
  while (status && !found && fgets(line, sizeof line, status))
    if (strncmp(line, name, strlen(name)) == 0) found = line + strlen(name);
  if (status) fclose(status);
  return found ? found : "";
}
static int sleeps(pid_t pid) { return value_of(pid, "State:\t")[0] == 'S'; }
static int is_pending(pid_t pid, int number) {
  return (int)(strtoull(value_of(pid, "ShdPnd:\t"), NULL, 16) >> (number - 1) & 1);
}

static void check(const struct Way* way, int number) {
  int ends[2];
  char byte = 0;
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = way->handler;
  action.sa_flags = way->flags;
  sigaction(number, &action, NULL);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, number);
  if (way->blocked) sigprocmask(SIG_BLOCK, &mask, NULL);
  if (pipe(ends) != 0) return;
  const pid_t reader = getpid(), child = fork();
  if (child == 0) {
    while (!sleeps(reader)) usleep(1000);  // it reads
    kill(reader, number);
    while (!way->blocked && is_pending(reader, number)) usleep(1000);
    while (!sleeps(reader)) usleep(1000);  // it reads again, or waits
    usleep(5000);
    _exit(write(ends[1], "x", 1) != 1);
  }
  const ssize_t got = read(ends[0], &byte, 1);
  printf("%d %s: %zd %s\n", number, way->name, got, got < 0 ? strerror(errno) : "");
  while (waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
  signal(number, SIG_IGN);
  sigprocmask(SIG_UNBLOCK, &mask, NULL);
}

int main(void) {
  const struct Way ways[] = {{"restarts", handle, SA_RESTART, 0},
                             {"interrupts", handle, 0, 0},
                             {"ignored", SIG_IGN, 0, 0},
                             {"blocked", SIG_DFL, 0, 1}};
  const int numbers[] = {SIGTRAP, SIGSEGV, SIGBUS, SIGFPE};
  for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; ++i)
    for (unsigned j = 0; j < sizeof ways / sizeof *ways; ++j) {
      probed(0);
      check(&ways[j], numbers[i]);
    }
  return 0;
}
