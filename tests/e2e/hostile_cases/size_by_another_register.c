// SPDX-License-Identifier: MIT
// Blocks all signals by a system call of its own in which the last number loaded is the size of the mask, then makes a child
// that begins right after a call of its own, as gcc's leak checker does.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void probed(void) { __asm__ volatile(""); }

long block(int how, const uint64_t* set, uint64_t* old);
long begin(long flags, void* stack);

__asm__(
    ".text\n.globl block\n.type block, @function\nblock: .cfi_startproc\n"
    "mov $14, %eax\n mov $8, %r8d\n mov %r8, %r10\n syscall\n ret\n.cfi_endproc\n.size block, . - block\n"
    ".globl begin\n.type begin, @function\nbegin: .cfi_startproc\n xor %edx, %edx\n xor %r10d, %r10d\n xor %r8d, %r8d\n"
    "mov $56, %eax\n syscall\n test %rax, %rax\n jne 1f\n xor %ebp, %ebp\n pop %rax\n call *%rax\n1: ret\n"
    ".cfi_endproc\n.size begin, . - begin\n");

static void child(void) {
  probed();
  _exit(3);
}

int main(void) {
  enum { kBytes = 1 << 16 };
  const uint64_t all = ~0ull;
  uint64_t before = 0;
  char* memory = mmap(0, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uint64_t* stack = (uint64_t*)(memory + kBytes) - 2;
  *stack = (uint64_t)&child;
  probed();
  block(SIG_SETMASK, &all, &before);
  const long pid = begin(CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD, stack);
  int status = -1;
  waitpid((pid_t)pid, &status, 0);
  block(SIG_SETMASK, &before, 0);
  printf("%d %d\n", WIFEXITED(status), WEXITSTATUS(status));
  return 0;
}
