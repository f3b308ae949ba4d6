// SPDX-License-Identifier: MIT
// Calls of every form while the alignment check flag (EFLAGS.AC) is set: what the program reads and writes is aligned.
#include <stdio.h>

__attribute__((noinline, used)) unsigned scramble(unsigned value) { return value * 2654435761u + 7; }
unsigned (*pointer)(unsigned) = scramble;
unsigned calls(unsigned);

__asm__(
    ".text\n.globl calls, direct, by_register, by_memory, by_stack, jumps\n.type calls, @function\n"
    "calls: .cfi_startproc\n push %rbx\n .cfi_adjust_cfa_offset 8\n sub $16, %rsp\n .cfi_adjust_cfa_offset 16\n"
    " pushfq\n orl $0x40000, (%rsp)\n popfq\n"
    "direct: call scramble\n"
    " mov %eax, %edi\n mov pointer(%rip), %rbx\n"
    "by_register: call *%rbx\n"
    " mov %eax, %edi\n"
    "by_memory: call *pointer(%rip)\n"
    " mov %eax, %edi\n mov %rbx, -8(%rsp)\n"
    "by_stack: call *-8(%rsp)\n"
    "jumps: jmp 1f\n nop\n nop\n nop\n"
    "1: pushfq\n andl $~0x40000, (%rsp)\n popfq\n"
    " add $16, %rsp\n .cfi_adjust_cfa_offset -16\n pop %rbx\n .cfi_adjust_cfa_offset -8\n ret\n .cfi_endproc\n"
    ".size calls, .-calls\n");

int main(void) {
  unsigned value = 1;
  for (int i = 0; i < 1000; ++i) value = calls(value);
  printf("%u\n", value);
  return 0;
}
