// SPDX-License-Identifier: MIT
// /proc shows the signal settings that the program has made itself.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }
static void handle(int number) { (void)number; }

static void show(const char* path) {
  char text[8192];
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t size = read(fd, text, sizeof text - 1);
  text[size > 0 ? size : 0] = 0;
  printf("%s: descriptor %d flags %d rest %zd\n", path, fd, fcntl(fd, F_GETFD), read(fd, text + 8000, 1));
  for (char* line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
    if (strncmp(line, "Sig", 3) == 0 && strncmp(line, "SigQ", 4) != 0) puts(line);
  close(fd);
}

static void* in_thread(void* unused) {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGSEGV);
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
  show("/proc/thread-self/status");
  return unused;
}

int main(void) {
  probed(0);
  show("/proc/self/status");
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGTRAP);
  sigaddset(&mask, SIGUSR2);
  sigprocmask(SIG_BLOCK, &mask, NULL);
  signal(SIGBUS, SIG_IGN);
  signal(SIGFPE, handle);
  signal(SIGUSR1, handle);
  probed(1);
  show("/proc/self/status");
  show("/proc/self/status/nothing");
  FILE* file = fopen("/proc/self/status", "r");
  char line[256];
  while (fgets(line, sizeof line, file))
    if (strncmp(line, "SigBlk", 6) == 0) fputs(line, stdout);
  fclose(file);
  pthread_t thread;
  pthread_create(&thread, NULL, in_thread, NULL);
  pthread_join(thread, NULL);
  return 0;
}
