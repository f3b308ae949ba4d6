// SPDX-License-Identifier: MIT
// A program that single-steps itself through functions that return: it sees its own instructions, each once and in order.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

#define LONG_ENOUGH "nop\n nop\n nop\n nop\n"
#define FUNCTION(name, body) \
  __asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n.cfi_startproc\n" body "\n.cfi_endproc\n.size " #name ", .-" #name)

// A leaf, one that calls, one with two exits, a tail call, one that calls itself, one that takes its arguments away.
FUNCTION(leaf, LONG_ENOUGH "lea 1(%rdi), %rax\n ret");
FUNCTION(outer, "push %rbx\n.cfi_adjust_cfa_offset 8\n mov %rdi, %rbx\n call leaf\n add %rbx, %rax\n pop %rbx\n.cfi_adjust_cfa_offset -8\n ret");
FUNCTION(either, LONG_ENOUGH "test $1, %dil\n jz 1f\n mov %rdi, %rax\n ret\n1: lea 7(%rdi), %rax\n ret");
FUNCTION(tail, "inc %rdi\n jmp leaf");
FUNCTION(deep, "xor %eax, %eax\n sub $1, %rdi\n js 1f\n push %rdi\n.cfi_adjust_cfa_offset 8\n call deep\n pop %rdi\n.cfi_adjust_cfa_offset -8\n add %rdi, %rax\n1: ret");
FUNCTION(turns_off, LONG_ENOUGH "pushfq\n andl $~0x100, (%rsp)\n popfq\n nop\n ret");
FUNCTION(turns_on, LONG_ENOUGH "pushfq\n orl $0x100, (%rsp)\n popfq\n nop\n ret");
long leaf(long), outer(long), either(long), tail(long), deep(long), turns_off(void), turns_on(void);

static unsigned long seen[4096];
static volatile int steps;
static void on_step(int number, siginfo_t* info, void* context) {
  const greg_t* const r = ((ucontext_t*)context)->uc_mcontext.gregs;
  (void)number;
  if (steps < 4096) seen[steps++] = (unsigned long)r[REG_RIP] ^ (unsigned long)info->si_code << 56;
}

int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_step;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGTRAP, &action, NULL);
  turns_on();
  long sum = leaf(1) + outer(2) + either(3) + either(4) + tail(5) + deep(3);
  turns_off();
  printf("sum %ld steps %d\n", sum, steps);
  for (int i = 0; i < steps; ++i) printf("%#lx\n", seen[i] - (unsigned long)main);
  return 0;
}
