// SPDX-License-Identifier: MIT
// Handlers on alternate stacks of every size: they run on the program's stack, see its settings, and die if a frame does not
// fit.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

__attribute__((noinline)) void probed(int n) { __asm__ volatile("" ::"r"(n)); }

static char* base;
static size_t size;
static volatile int inner, wrong;

static int is_inside(const void* at) { return (const char*)at >= base && (const char*)at < base + size; }

static void second(int number) {
  (void)number;
  char here;
  if (!is_inside(&here)) ++wrong;
  ++inner;
  probed(2);
}

static void first(int number, siginfo_t* info, void* data) {
  (void)info;
  const ucontext_t* context = data;
  stack_t now, other = {.ss_sp = base, .ss_size = size + 1};
  if (!is_inside(&now) || !is_inside(context)) ++wrong;
  if (context->uc_stack.ss_sp != base || context->uc_stack.ss_size != size || context->uc_stack.ss_flags != 0) ++wrong;
  if (sigaltstack(NULL, &now) != 0 || now.ss_sp != base || now.ss_size != size || now.ss_flags != SS_ONSTACK) ++wrong;
  if (sigaltstack(&other, NULL) == 0) ++wrong;
  probed(1);
  if (number == SIGUSR1 && size >= 16384) raise(SIGUSR2);
}

static void plain(int number) {
  (void)number;
  char here;
  if (is_inside(&here)) ++wrong;
  probed(3);
}

static void install(int number, void* handler, int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(number, &action, NULL);
}

static void one_size(void) {
  const stack_t stack = {.ss_sp = base, .ss_size = size};
  stack_t old = {.ss_flags = 77};
  if (sigaltstack(&stack, NULL) != 0) _exit(3);
  install(SIGUSR1, first, SA_SIGINFO | SA_ONSTACK);
  install(SIGUSR2, second, 0);
  install(SIGWINCH, plain, 0);
  for (int i = 0; i < 3; ++i) {
    probed(0);
    raise(SIGUSR1);
    raise(SIGWINCH);
  }
  const stack_t off = {.ss_flags = SS_DISABLE};
  if (sigaltstack(&off, &old) != 0 || old.ss_sp != base || old.ss_size != size || old.ss_flags != 0) ++wrong;
  if (sigaltstack(NULL, &old) != 0 || old.ss_flags != SS_DISABLE || old.ss_size != 0) ++wrong;
  if (sigaltstack(NULL, (stack_t*)8) == 0 || sigaltstack((stack_t*)8, NULL) == 0) ++wrong;
  const stack_t odd = {.ss_sp = base, .ss_size = size, .ss_flags = 4};
  if (sigaltstack(&odd, NULL) == 0) ++wrong;
  _exit(wrong != 0 ? 4 : inner > 0 ? 5 : 0);
}

int main(void) {
  char* memory = mmap(NULL, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  base = memory + (1 << 16);
  for (size = 1024; size <= 65536; size += size < 8192 ? 128 : 8192) {
    memset(memory, 0x5a, 1 << 18);
    const pid_t child = fork();
    if (child == 0) one_size();
    int status = 0;
    waitpid(child, &status, 0);
    printf("%zu: %x\n", size, status & 0xff7f);
  }
  return 0;
}
