// SPDX-License-Identifier: MIT
// work KIND TIMES: at each line of its input makes the calls of one kind so many times, checks what they return, and says `done`.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static long wrong;

__attribute__((noinline)) void work(long n) { __asm__ volatile("" : "+r"(n)); }

static void expect(int holds) { wrong += !holds; }

static void handle(int number) { (void)number; }

static void masks(void) {
  sigset_t set, before, now;
  sigemptyset(&set);
  sigaddset(&set, SIGTRAP);
  sigaddset(&set, SIGUSR2);
  expect(sigprocmask(SIG_BLOCK, &set, &before) == 0 && !sigismember(&before, SIGTRAP));
  expect(sigprocmask(SIG_SETMASK, &before, &now) == 0 && sigismember(&now, SIGTRAP) && sigismember(&now, SIGUSR2));
  expect(sigprocmask(77, &set, NULL) == -1 && errno == EINVAL);
  expect(sigprocmask(SIG_BLOCK, NULL, (sigset_t*)8) == -1 && errno == EFAULT);
}

static void actions(void) {
  struct sigaction action, before;
  memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  sigaddset(&action.sa_mask, SIGTRAP);
  expect(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
  expect(sigaction(SIGSEGV, NULL, &before) == 0 && before.sa_handler == handle &&
         sigismember(&before.sa_mask, SIGTRAP));
  action.sa_handler = SIG_DFL;
  expect(sigaction(SIGUSR1, &action, &before) == 0 && before.sa_handler == handle);
}

static void pages(void) {
  char* at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(at != MAP_FAILED);
  at[0] = 1;
  expect(mprotect(at, 4096, PROT_READ) == 0 && mprotect((void*)4096, 4096, PROT_READ) == -1 && errno == ENOMEM);
  expect(mmap(at, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at && at[0] == 0);
  expect(munmap(at, 8192) == 0);
  expect(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
}

static void files(void) {
  const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
  expect(file >= 0 && close(file) == 0);
  expect(open("/no/such/file", O_RDONLY) == -1 && errno == ENOENT);
}

// The page below the stack that the call is made on becomes one of a guard, and is given back.
static void guards(void) {
  char* page = (char*)(((unsigned long)__builtin_frame_address(0) - 4096) & ~4095ul);
  expect(mprotect(page - 4096, 4096, PROT_NONE) == 0 && mprotect(page - 4096, 4096, PROT_READ | PROT_WRITE) == 0);
  expect(mprotect(page, 4096, PROT_NONE) == 0);
  expect(mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0);
}

#ifdef __GLIBC__
// A coroutine whose stack has room for what it does itself.
static ucontext_t outside, inside;
static long turns;

static void turn(void) {
  for (;;) {
    ++turns;
    swapcontext(&inside, &outside);
  }
}

static void contexts(void) {
  static char stack[1024 + 4096 * 2], *small = stack + 4096;
  if (inside.uc_stack.ss_sp == NULL) {
    memset(stack, 0x5a, sizeof stack);
    getcontext(&inside);
    inside.uc_stack.ss_sp = small;
    inside.uc_stack.ss_size = 512;
    makecontext(&inside, turn, 0);
  }
  const long before = turns;
  swapcontext(&outside, &inside);
  expect(turns == before + 1);
  for (int i = 0; i < 4096; ++i) expect(stack[i] == 0x5a);
}

#else
static void contexts(void) {}
#endif

int main(int count, char** words) {
  static const struct {
    const char* name;
    void (*make)(void);
  } kinds[] = {{"masks", masks}, {"actions", actions}, {"pages", pages},
               {"files", files}, {"guards", guards},   {"contexts", contexts}};
  if (count != 3) return 2;
  char line[64];
  puts("ready");
  fflush(stdout);
  while (fgets(line, sizeof line, stdin) != NULL) {
    for (unsigned kind = 0; kind < sizeof kinds / sizeof kinds[0]; ++kind)
      for (long i = 0; strcmp(kinds[kind].name, words[1]) == 0 && i < atol(words[2]); ++i) kinds[kind].make();
    work(1);
    printf("done, %ld wrong\n", wrong);
    fflush(stdout);
  }
  return 7;
}
