// SPDX-License-Identifier: MIT
# long system_call_through(SystemCall*): loads the registers of a system call, jumps to `entry` and takes what comes out.
# The code at `entry` ends with jmp *%r15. Nothing on the stack is used between, so that a vfork child can run it on its
# parent's stack and a clone child on an empty one. A child, told by rax = 0 where `expects_child` is set, writes down what
# it found and exits with 7. Offsets are those of SystemCall in system_call_test.cpp.

        .set ENTRY, 0
        .set NUMBER, 8
        .set ARGUMENTS, 16
        .set EXPECTS_CHILD, 64
        .set OUT, 72            # rcx, r11, rsp
        .set CHILD, 96          # the same

        .text
        .globl system_call_through
        .hidden system_call_through
        .type system_call_through, @function
system_call_through:
        .cfi_startproc
        pushq %rbx
        pushq %r12
        pushq %r15
        movq %rdi, %rbx
        movq ENTRY(%rbx), %r12
        leaq 1f(%rip), %r15
        movq NUMBER(%rbx), %rax
        movq ARGUMENTS+0(%rbx), %rdi
        movq ARGUMENTS+8(%rbx), %rsi
        movq ARGUMENTS+16(%rbx), %rdx
        movq ARGUMENTS+24(%rbx), %r10
        movq ARGUMENTS+32(%rbx), %r8
        movq ARGUMENTS+40(%rbx), %r9
        xorl %r11d, %r11d       # known flags: zero and parity set
        jmpq *%r12
1:      testq %rax, %rax
        jnz 2f
        cmpq $0, EXPECTS_CHILD(%rbx)
        jz 2f
        movq %rcx, CHILD+0(%rbx)
        movq %r11, CHILD+8(%rbx)
        movq %rsp, CHILD+16(%rbx)
        movl $60, %eax          # exit
        movl $7, %edi
        syscall
        ud2
2:      movq %rcx, OUT+0(%rbx)
        movq %r11, OUT+8(%rbx)
        movq %rsp, OUT+16(%rbx)
        popq %r15
        popq %r12
        popq %rbx
        retq
        .cfi_endproc
        .size system_call_through, .-system_call_through
        .section .note.GNU-stack, "", @progbits
