// SPDX-License-Identifier: MIT
// A timer interrupts probed instructions of all kinds at every place: handlers see places of the program and never a trap flag
// that it has not set, pushed flags have none, faults are those of the program, and a program that steps itself counts the same
// steps as without a timer.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { kRounds = 6000, kTrapFlag = 0x100 };
#define FUNCTION(name, body) __asm__(".globl " #name "\n.type " #name ", @function\n" #name ": " body "\n.size " #name ", .-" #name "\n")
FUNCTION(pushes, "pushfq\npop %rax\nret");
FUNCTION(pops, "popfq\npush %rdi\nret");  // called by `visit_pops`, which has pushed flags after its return address
FUNCTION(loads, "mov (%rdi), %rax\nret");
FUNCTION(calls, "call *target(%rip)\nret");
FUNCTION(turns, "loop turns\nret");  // long turns(int, int, int, count): each turn is a hit
FUNCTION(fills, "rep stosb\nret");   // (to, x, x, count)
FUNCTION(returns, "ret");
FUNCTION(steps, "nop\nlea 1(%rdi), %rax\nret");
FUNCTION(visit_pops, "pop %rdi\npush %rsi\njmp pops");
long pushes(void), loads(const long*), steps(long);
void calls(void), turns(int, int, int, long), returns(void), visit_pops(long, long);
void fills(char*, int, int, long);
static void nothing(void) {}
void (*target)(void) = nothing;

static volatile int alarms, odd_flags, faults, odd_faults, traps, stepping;

static void on_alarm(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  const greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  ++alarms;
  if (!stepping && (registers[REG_EFL] & kTrapFlag)) ++odd_flags;
}

static void on_fault(int number, siginfo_t* info, void* context) {
  (void)number;
  greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  ++faults;
  if (registers[REG_RIP] != (greg_t)loads || (registers[REG_EFL] & kTrapFlag) || info->si_addr != (void*)16) ++odd_faults;
  registers[REG_RIP] += 3;
}

static void on_trap(int number) {
  (void)number;
  ++traps;
}

static int step_once(void) {
  traps = 0;
  stepping = 1;
  __asm__ volatile("sub $128, %%rsp; pushfq; orl $0x100, (%%rsp); popfq" ::: "memory", "cc");
  steps(1);
  returns();
  __asm__ volatile("pushfq; andl $~0x100, (%%rsp); popfq; add $128, %%rsp" ::: "memory", "cc");
  stepping = 0;
  return traps;
}

int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  action.sa_sigaction = on_alarm;
  sigaction(SIGALRM, &action, NULL);
  action.sa_sigaction = on_fault;
  sigaction(SIGSEGV, &action, NULL);
  action.sa_flags = 0;
  action.sa_handler = on_trap;
  sigaction(SIGTRAP, &action, NULL);
  const int expected = step_once();
  const struct itimerval fast = {{0, 60}, {0, 60}}, off = {{0, 0}, {0, 0}};
  int odd_pushes = 0, odd_steps = 0, odd_children = 0;
  static char text[100000];
  const long word = 3;
  setitimer(ITIMER_REAL, &fast, NULL);
  for (int i = 0; i < kRounds; ++i) {
    if (pushes() & kTrapFlag) ++odd_pushes;
    visit_pops(0, 0x202);
    loads(&word);
    if (i % 4 == 0) loads((const long*)16);
    calls();
    turns(0, 0, 0, 3);
    if (i % 4 == 0) fills(text, 0, 0, i % 8 == 0 ? 50 : (long)sizeof text);
    returns();
    if (i % 8 == 0 && step_once() != expected) ++odd_steps;
    if (i % 1000 == 0) {
      const pid_t child = fork();
      if (child == 0) {
        for (int n = 0; n < 20; ++n) returns();
        _exit(odd_flags);
      }
      int status = 1;
      waitpid(child, &status, 0);
      if (status != 0) ++odd_children;
    }
  }
  setitimer(ITIMER_REAL, &off, NULL);
  printf("pushes %d flags %d faults %d odd %d steps %d of %d children %d alarms %d\n", odd_pushes, odd_flags, faults,
         odd_faults, odd_steps, expected, odd_children, alarms > 0);
  return 0;
}
