// SPDX-License-Identifier: MIT
// Vector registers, whole, live across probed calls while handlers interrupt and use vectors of their own.
#define _GNU_SOURCE
#include <immintrin.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

__attribute__((noinline)) void probed(void) { __asm__ volatile("nop"); }

static volatile int ran;
static char buffer[4096];
static void handle(int number) {
  memset(buffer, number, sizeof buffer);
  __asm__ volatile("vpcmpeqb %%ymm0, %%ymm0, %%ymm0; vmovdqa %%ymm0, %%ymm7; vmovdqa %%ymm0, %%ymm15" ::: "memory");
  ++ran;
}

static void install(int number, int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  action.sa_flags = flags | SA_RESTART;
  sigaction(number, &action, NULL);
}

int main(void) {
  const stack_t mine = {.ss_sp = malloc(65536), .ss_size = 65536};
  if (!__builtin_cpu_supports("avx2")) return puts("no AVX2") < 0;
  sigaltstack(&mine, NULL);
  install(SIGALRM, 0);
  install(SIGVTALRM, SA_ONSTACK);
  const struct itimerval fast = {{0, 70}, {0, 70}}, off = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &fast, NULL);
  setitimer(ITIMER_VIRTUAL, &fast, NULL);
  long changed = 0;
  unsigned char in[96], out[96];
  for (long i = 0; ran < 3000; ++i) {
    memset(in, (int)i, sizeof in);
    in[31] = 1, in[63] = 2, in[95] = 3;
    __asm__ volatile(
        "vmovdqu (%1), %%ymm0; vmovdqu 32(%1), %%ymm7; vmovdqu 64(%1), %%ymm15\n"
        "sub $128, %%rsp; call probed; call probed; call probed; add $128, %%rsp\n"
        "vmovdqu %%ymm0, (%0); vmovdqu %%ymm7, 32(%0); vmovdqu %%ymm15, 64(%0)" ::"r"(out),
        "r"(in)
        : "memory", "rax", "rcx", "r11", "ymm0", "ymm7", "ymm15");
    changed += memcmp(in, out, sizeof in) != 0;
  }
  setitimer(ITIMER_REAL, &off, NULL);
  setitimer(ITIMER_VIRTUAL, &off, NULL);
  printf("changed %ld\n", changed);
  return 0;
}
