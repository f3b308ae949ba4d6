// SPDX-License-Identifier: MIT
// A handler checks where its instruction has failed; the system call that installs it loads its number in an unusual way.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

struct kernel_action {
  void (*handler)(int, siginfo_t*, void*);
  unsigned long flags;
  void (*restorer)(void);
  unsigned long mask;
};

void probed(const char* nowhere);
void leave(void);
__asm__(
    ".text\n.globl probed\n.type probed, @function\nprobed: movzbl (%rdi), %eax\n ret\n.size probed, . - probed\n"
    "leave: mov $15, %eax\n syscall\n");

static void look(int signal, siginfo_t* info, void* context) {
  (void)signal, (void)info;
  greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  printf("%s\n", registers[REG_RIP] == (greg_t)(unsigned long)probed ? "there" : "elsewhere");
  fflush(stdout);
  _exit(0);
}

int main(void) {
  const struct kernel_action action = {look, SA_SIGINFO | 0x04000000 /* SA_RESTORER */, leave, 0};
  volatile long one = 1;
  long result = SYS_rt_sigaction * one;
  register long size __asm__("r10") = 8;
  __asm__ volatile("syscall" : "+a"(result) : "D"(SIGSEGV), "S"(&action), "d"(0), "r"(size) : "rcx", "r11", "memory");
  probed((const char*)16);
  return 1;
}
