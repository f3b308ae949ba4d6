// SPDX-License-Identifier: MIT
// Executes a probed instruction that needs no stack at every distance from the end of a stack. The program may see no fault.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

long executed;
void visit(void* stack);
__asm__(
    ".globl visit, visit_site\n.type visit, @function\nvisit:\n.cfi_startproc\npush %rbp\nmov %rsp, %rbp\nmov %rdi, %rsp\n"
    "visit_site: incq executed(%rip)\n"
    "mov %rbp, %rsp\npop %rbp\nret\n.cfi_endproc\n.size visit, .-visit\n");

static volatile long faults;
static void on_fault(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  ++faults;
  ((ucontext_t*)context)->uc_mcontext.gregs[REG_RSP] = ((ucontext_t*)context)->uc_mcontext.gregs[REG_RBP];
}

int main(void) {
  const stack_t alternate = {.ss_sp = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                             .ss_size = 65536};
  sigaltstack(&alternate, NULL);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  action.sa_sigaction = on_fault;
  sigaction(SIGSEGV, &action, NULL);
  char* pages = mmap(NULL, 5 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(pages + 4096, 3 * 4096, PROT_READ | PROT_WRITE);
  for (long above = 0; above < 1600; above += 8) visit(pages + 4096 + above);
  printf("%ld executed, %ld faults\n", executed, faults);
  return 0;
}
