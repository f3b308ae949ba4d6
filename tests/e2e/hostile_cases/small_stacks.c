// SPDX-License-Identifier: MIT
// Coroutines on stacks that hold one signal frame and hardly more, under a fast timer: the memory below each stack stays.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

enum { kStacks = 20, kRounds = 5000, kBytes = 8192, kGuard = 4096 };

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }

static char memory[kStacks][kGuard + kBytes] __attribute__((aligned(64)));
static ucontext_t back, own[kStacks];
static volatile long ticks;
static void tick(int number) { ticks += number == SIGALRM; }

static void run(int which) {
  for (int i = 0; i < kRounds; ++i) {
    probed(which);
    if (i % 100 == 0) swapcontext(&own[which], &back);
  }
  for (;;) swapcontext(&own[which], &back);
}

int main(void) {
  memset(memory, 0x77, sizeof memory);
  for (int i = 0; i < kStacks; ++i) {
    getcontext(&own[i]);
    own[i].uc_stack.ss_sp = memory[i] + kGuard;
    own[i].uc_stack.ss_size = kBytes;
    makecontext(&own[i], (void (*)(void))run, 1, i);
  }
  signal(SIGALRM, tick);
  const struct itimerval fast = {{0, 200}, {0, 200}}, off = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &fast, NULL);
  for (int round = 0; round < kRounds / 100 + 2; ++round)
    for (int i = 0; i < kStacks; ++i) swapcontext(&back, &own[i]);
  setitimer(ITIMER_REAL, &off, NULL);
  int damaged = 0;
  for (int i = 0; i < kStacks; ++i)
    for (int k = 0; k < kGuard; ++k) damaged += memory[i][k] != 0x77;
  printf("damaged %d\n", damaged);
  return 0;
}
