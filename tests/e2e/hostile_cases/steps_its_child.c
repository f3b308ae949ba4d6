// SPDX-License-Identifier: MIT
// A debugger in the traced tree attaches to its child and steps it through probed functions that were entered before, and
// return: it sees the child's own instructions, and the words that the child reads of its stack are the program's.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define FUNCTION(name, body) \
  __asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n.cfi_startproc\n" body "\n.cfi_endproc\n.size " #name ", .-" #name)

// It waits in the innermost one.
FUNCTION(leaf, "lea 1(%rdi), %rax\n nop\n ret");
FUNCTION(waits, "mov $0, %eax\n1: pause\n cmpb $0, go_on(%rip)\n je 1b\n nop\n nop\n ret");
FUNCTION(middle, "push %rbx\n.cfi_adjust_cfa_offset 8\n mov %rdi, %rbx\n call waits\n mov %rbx, %rdi\n call leaf\n pop %rbx\n.cfi_adjust_cfa_offset -8\n ret");
FUNCTION(tail, "inc %rdi\n jmp middle");
FUNCTION(outer, "sub $8, %rsp\n.cfi_adjust_cfa_offset 8\n call tail\n call leaf\n add $8, %rsp\n.cfi_adjust_cfa_offset -8\n ret");
FUNCTION(ends, "nop\n nop\n nop\n nop\n nop\n ret");
long outer(long);
void ends(void);
extern char leaf[], waits[];
volatile char go_on, is_there;

static uintptr_t ip_of(pid_t child) {
  struct user_regs_struct r;
  return ptrace(PTRACE_GETREGS, child, 0, &r) == 0 ? r.rip : 0;
}

int main(void) {
  int ready[2], status = 0;
  setbuf(stdout, 0);
  if (pipe(ready) != 0) return 1;
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 3; ++i) go_on = 1, outer(i);  // every probe has been hit
    go_on = 0;
    (void)!write(ready[1], "x", 1);
    const long value = outer(4);
    ends();
    _exit((int)value);
  }
  char word;
  (void)!read(ready[0], &word, 1);
  usleep(50000);
  long result = ptrace(PTRACE_ATTACH, child, 0, 0);
  waitpid(child, &status, 0);
  printf("%ld stop %#x waits %d\n", result, status, ip_of(child) - (uintptr_t)waits < 32);
  ptrace(PTRACE_POKEDATA, child, &go_on, (void*)1);
  int steps = 0;
  for (uintptr_t ip = 0; ip != (uintptr_t)ends && steps < 200; ++steps) {
    ptrace(PTRACE_SINGLESTEP, child, 0, 0);
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) break;
    ip = ip_of(child);
    if (ip - (uintptr_t)waits < 16) continue;
    printf("%#lx %#x\n", (long)(ip - (uintptr_t)main), status);
  }
  printf("detach %ld\n", ptrace(PTRACE_DETACH, child, 0, 0));
  waitpid(child, &status, 0);
  printf("status %#x\n", status);
  return 0;
}
