// SPDX-License-Identifier: MIT
// A call through memory that cannot be read has pushed nothing when the handler looks.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

extern char calls_plain[], calls_more[], after_plain[], after_more[];
__asm__(
    ".text\n"
    ".globl call_plain\n.type call_plain,@function\n"
    "call_plain: mov %rsi, -16(%rsp)\n call calls_plain\n ret\n.size call_plain,.-call_plain\n"
    ".globl call_more\n.type call_more,@function\n"
    "call_more: mov %rsi, -16(%rsp)\n call calls_more\n ret\n.size call_more,.-call_more\n"
    ".globl calls_plain\n.type calls_plain,@function\n"
    "calls_plain: call *(%rdi)\n after_plain: nop\n nop\n nop\n nop\n ret\n.size calls_plain,.-calls_plain\n"
    ".globl calls_more\n.type calls_more,@function\n"
    "calls_more: call *%fs:8(%rdi,%r9,2)\n after_more: nop\n nop\n nop\n nop\n ret\n.size calls_more,.-calls_more\n");
extern void call_plain(unsigned long where, unsigned long word);
extern void call_more(unsigned long where, unsigned long word);

static void on_fault(int number, siginfo_t* info, void* context) {
  greg_t* const r = ((ucontext_t*)context)->uc_mcontext.gregs;
  const int is_plain = r[REG_RIP] == (greg_t)calls_plain;
  (void)number, (void)info;
  printf("%d %d %#lx\n", is_plain, r[REG_RIP] == (greg_t)calls_more, *(unsigned long*)(r[REG_RSP] - 8));
  r[REG_RIP] = (greg_t)(is_plain ? after_plain : after_more);
}

int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, 0);
  for (unsigned long i = 1; i <= 3; ++i) {
    call_plain(16, 0x1122334455667700 + i);
    call_more(1ul << 62, 0x7766554433221100 + i);
  }
  return 0;
}
