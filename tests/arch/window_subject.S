// SPDX-License-Identifier: MIT
// Functions of the form long f(long, long) for window_test.cpp, which lays windows over them and compares what they return.
// They keep to a page of their own.

  .section .text.window_subject, "ax"
  .p2align 12
  .globl window_subject_begin
window_subject_begin:

  .globl window_arithmetic
window_arithmetic:
  push %rbp
  mov %rsp, %rbp
  push %rbx
  mov %rdi, %rbx
  imul %rsi, %rbx
  xor %eax, %eax
  cmp %esi, %edi
  setg %al
  add %rbx, %rax
  mov %rax, -24(%rbp)
  rol $7, %rax
  adc -24(%rbp), %rax
  pop %rbx
  pop %rbp
  ret

// The red zone, and flags across instructions.
  .globl window_red_zone
window_red_zone:
  mov %rdi, -8(%rsp)
  mov %rsi, -128(%rsp)
  add %rdi, %rsi
  mov -8(%rsp), %eax
  sbb %rdx, %rdx
  xor -128(%rsp), %rax
  inc %edx
  dec %ecx
  lea (%rax,%rdx,4), %rax
  ret

  .globl window_loops
window_loops:
  mov %esi, %ecx
  and $15, %ecx
  inc %ecx
  xor %eax, %eax
1: add %rdi, %rax
  ror %eax
  dec %ecx
  jnz 1b
  test $1, %al
  jz 2f
  not %rax
2: jrcxz 3f
  ud2
3: ret

  .globl window_calls
window_calls:
  push %rbx
  mov %rdi, %rbx
  call window_loops
  push %rax
  mov $window_red_zone - 1f, %eax
  cltq
  lea 1f(%rip), %rdx
  add %rdx, %rax
1: mov %rbx, %rdi
  push %rsi
  call *%rax
  pop %rsi
  pop %rdx
  xor %rdx, %rax
  xor window_constant(%rip), %rax
  pop %rbx
  ret
  .p2align 3
window_constant:
  .quad 0x123456789abcdef

  .globl window_strings
window_strings:
  push %rdi
  push %rsi
  mov %rsp, %rsi
  sub $24, %rsp
  mov %rsp, %rdi
  cld
  mov $2, %ecx
  rep movsq
  mov (%rsp), %rax
  sub 8(%rsp), %rax
  add $40, %rsp
  ret

  .globl window_subject_end
window_subject_end:
  .p2align 12
  .section .note.GNU-stack, "", @progbits
