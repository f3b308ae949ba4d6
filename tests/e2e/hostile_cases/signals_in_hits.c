// SPDX-License-Identifier: MIT
// Thousands of signals while probed functions run: none is lost or out of order, and every handler sees a place of the program,
// never one that it does not have.
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { kKinds = 4, kEach = 3000, kCalls = 200000 };

__attribute__((noinline)) void probed(long n) { __asm__ volatile("" ::"r"(n)); }

// Begins with an instruction that is interruptible in its middle.
void copies(void* to, const void* from, long unused, long n);
__asm__(".globl copies\n.type copies, @function\ncopies: rep movsb\nmov %rdi, %rax\nret\n.size copies, .-copies\n");
// Begins with a call through memory, which is several instructions elsewhere.
void calls(void);
__asm__(".globl calls\n.type calls, @function\ncalls: call *target(%rip)\nret\n.size calls, .-calls\n");
static void nothing(void) {}
void (*target)(void) = nothing;

static struct {
  unsigned long begin, end;
} text[64];
static int texts;
static volatile int received[kKinds + 1], misplaced, disordered, masked_wrong;

// Executable mappings of files, the tracer's own excepted.
static void find_text(void) {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[512];
  while (fgets(line, sizeof line, maps) && texts < 64) {
    char path[256] = "", bits[8];
    unsigned long begin, end;
    if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %255s", &begin, &end, bits, path) < 4 || bits[2] != 'x') continue;
    if (strstr(path, "uprobe.so") || strcmp(path, "") == 0) continue;
    text[texts].begin = begin;
    text[texts++].end = end;
  }
  fclose(maps);
}

static void check_place(const ucontext_t* context) {
  const unsigned long ip = (unsigned long)context->uc_mcontext.gregs[REG_RIP];
  for (int i = 0; i < texts; ++i)
    if (ip >= text[i].begin && ip < text[i].end) return;
  ++misplaced;
}

static void queued(int number, siginfo_t* info, void* context) {
  const int kind = number - SIGRTMIN;
  check_place(context);
  if (info->si_value.sival_int != received[kind]) ++disordered;
  ++received[kind];
  sigset_t now;
  sigprocmask(SIG_BLOCK, NULL, &now);
  const int other = kind == 1 ? SIGUSR2 : kind == 2 ? SIGUSR1 : number;
  if (!sigismember(&now, number) || !sigismember(&now, other)) ++masked_wrong;
}

static void timed(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  ++received[kKinds];
  check_place(context);
}

static void install(int number, void (*handler)(int, siginfo_t*, void*), int flags, int masked) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = handler;
  action.sa_flags = flags | SA_SIGINFO | SA_RESTART;
  if (masked) sigaddset(&action.sa_mask, masked);
  sigaction(number, &action, NULL);
}

static void send_all(pid_t to) {
  for (int i = 0; i < kEach; ++i)
    for (int kind = 0; kind < kKinds; ++kind) {
      const union sigval value = {.sival_int = i};
      while (sigqueue(to, SIGRTMIN + kind, value) != 0 && errno == EAGAIN) usleep(100);
    }
}

int main(void) {
  find_text();
  const stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
  sigaltstack(&stack, NULL);
  install(SIGRTMIN, queued, 0, 0);
  install(SIGRTMIN + 1, queued, 0, SIGUSR2);
  install(SIGRTMIN + 2, queued, SA_ONSTACK, SIGUSR1);
  install(SIGRTMIN + 3, queued, SA_ONSTACK, 0);
  install(SIGALRM, timed, 0, 0);
  const struct itimerval fast = {{0, 100}, {0, 100}}, off = {{0, 0}, {0, 0}};
  const pid_t me = getpid(), child = fork();
  if (child == 0) {
    send_all(me);
    _exit(0);
  }
  setitimer(ITIMER_REAL, &fast, NULL);
  static char from[4096], to[4096];
  memset(from, 7, sizeof from);
  for (long i = 0; i < kCalls; ++i) {
    probed(i);
    if (i % 10 == 0) copies(to, from, 0, sizeof to);
    if (i % 10 == 5) calls();
  }
  while (waitpid(child, NULL, 0) != child) continue;
  setitimer(ITIMER_REAL, &off, NULL);
  for (int kind = 0; kind < kKinds; ++kind) printf("%d ", received[kind]);
  printf("misplaced %d disordered %d masked_wrong %d copied %d\n", misplaced, disordered, masked_wrong,
         memcmp(from, to, sizeof to));
  return 0;
}
