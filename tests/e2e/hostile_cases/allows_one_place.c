// SPDX-License-Identifier: MIT
// A seccomp filter that lets only one instruction ask for the parent's process id.
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

// The system call `number`: the probed instruction makes it.
long probed(long number);
__asm__(
    ".text\n.type ask, @function\nask: mov %rdi, %rax\n"
    ".globl probed\n.type probed, @function\nprobed: syscall\n.size probed, . - probed\n"
    "after: ret\n");
long ask(long number);
extern const char after[];

int main(void) {
  const unsigned low = (unsigned)(unsigned long)after;  // the kernel has the address after the instruction
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, low, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1)};
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
  printf("%d\n", ask(SYS_getppid) > 0);
  return 0;
}
