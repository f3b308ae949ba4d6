// SPDX-License-Identifier: MIT
// Files opened while signals come all the time: the own status with the program's signals, a path that ends with its page, one
// that cannot be read, and a fifo whose other side is never opened: a signal ends that open.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }
static volatile sig_atomic_t alarms;
static void handle(int number) { (void)number, ++alarms; }

static void tick(int microseconds) {
  const struct itimerval every = {{0, microseconds}, {0, microseconds}};
  setitimer(ITIMER_REAL, &every, NULL);
}

static int caught_and_blocked_are(const char* path, uint64_t caught, uint64_t blocked) {
  char text[8192];
  const int fd = open(path, O_RDONLY);
  if (fd < 0) return 0;
  const ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  text[size > 0 ? size : 0] = 0;
  const char *c = strstr(text, "SigCgt:"), *b = strstr(text, "SigBlk:");
  return c && b && (strtoull(c + 7, NULL, 16) & 0x3fffffff) == caught && strtoull(b + 7, NULL, 16) == blocked;
}

static void* in_thread(void* wrong) {
  char* pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(pages + 4096, 4096);
  char* last = pages + 4096 - 2;
  strcpy(last, "?");
  for (int i = 0; i < 20000; ++i) {
    if (open(last, O_RDONLY) != -1 || errno != ENOENT) ++*(int*)wrong;
    if (i % 100 == 0 && (open(pages + 4096, O_RDONLY) != -1 || errno != EFAULT)) ++*(int*)wrong;
    if (i % 100 == 0 && (openat(AT_FDCWD, (char*)8, O_RDONLY) != -1 || errno != EFAULT)) ++*(int*)wrong;
  }
  return NULL;
}

int main(void) {
  int wrong = 0, wrong_there = 0, interrupted = 0;
  probed(0);
  struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGTRAP);
  pthread_sigmask(SIG_BLOCK, &mask, NULL);
  tick(150);
  pthread_t thread;
  pthread_create(&thread, NULL, in_thread, &wrong_there);
  for (int i = 0; i < 2000; ++i)
    if (!caught_and_blocked_are("/proc/self/status", 1u << (SIGALRM - 1), 1u << (SIGTRAP - 1))) ++wrong;
  pthread_join(thread, NULL);
  tick(0);
  action.sa_flags = 0;
  sigaction(SIGALRM, &action, NULL);
  char name[64];
  snprintf(name, sizeof name, "/tmp/opens_under_alarms.%d", getpid());
  mkfifo(name, 0600);
  for (int i = 0; i < 50; ++i) {
    tick(500);
    if (open(name, O_RDONLY) == -1 && errno == EINTR) ++interrupted;
    tick(0);
  }
  unlink(name);
  printf("wrong %d %d, interrupted %d, signals %d\n", wrong, wrong_there, interrupted, alarms > 50);
  probed(1);
  return 0;
}
