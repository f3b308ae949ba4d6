// SPDX-License-Identifier: MIT
// The functions that the traced program calls: the three kinds of places that the kernel's uprobes tell apart, a
// breakpoint of the program's own, a crowd of 20,000 ordinary functions, and one that calls each of them.

        .text

        .macro SITE name
        .globl  \name
        .type   \name, @function
        .p2align 4
\name:
        .cfi_startproc
        .endm

        .macro  END name
        .cfi_endproc
        .size   \name, . - \name
        .endm

        SITE site_push                  # the kernel emulates a push
        pushq   %rbp
        popq    %rbp
        ret
        END site_push

        SITE site_move                  # the kernel single-steps it
        movq    %rdi, %rax
        ret
        END site_move

        SITE site_nop                   # since 6.18 the kernel turns it into a call
        .byte   0x0f, 0x1f, 0x44, 0x00, 0x00
        ret
        END site_nop

        SITE site_pair                  # calls no function, has an exit that a jump fits on
        pushq   %rbp
        popq    %rbp
        ret
        END site_pair

        SITE site_deep                  # 30 calls, one in the other
        pushq   %rbx
        movl    $30, %ebx
        call    site_deeper
        popq    %rbx
        ret
        END site_deep

        SITE site_deeper
        pushq   %rbp
        subl    $1, %ebx
        jz      1f
        call    site_deeper
1:      popq    %rbp
        ret
        END site_deeper

        SITE site_trap
        int3
        ret
        END site_trap

# Functions begin as compilers make them: with an instruction that a jump fits into, with shorter ones, with a branch.
        .altmacro
        .macro  MEMBER number
        SITE crowd_\number
        .set    kind, \number % 8
        .if     kind == 0
        movl    $\number, %eax
        .elseif kind == 1
        leaq    \number(%rsi,%rdx,8), %rax
        .elseif kind == 2
        pushq   %rbp
        movq    %rsp, %rbp
        leal    \number(%rsi), %eax
        popq    %rbp
        .elseif kind == 3
        subq    $0x108, %rsp
        leal    \number(%rsi), %eax
        addq    $0x108, %rsp
        .elseif kind == 4
        endbr64
        leal    \number(%rsi), %eax
        .elseif kind == 5
        movq    number_of_calls(%rip), %rax
        .elseif kind == 6
        testl   %esi, %esi
        je      1f
        movl    $\number, %eax
        ret
1:      xorl    %eax, %eax
        .else
        pushq   %r15
        pushq   %r14
        movl    %esi, %eax
        popq    %r14
        popq    %r15
        .endif
        ret
        END crowd_\number
        .endm

        .set    i, 0
        .rept   20000
        MEMBER  %i
        .set    i, i + 1
        .endr

        .macro  VISIT number
        call    crowd_\number
        .endm

        SITE site_crowd                 # each of the crowd once
        .set    i, 0
        .rept   20000
        VISIT   %i
        .set    i, i + 1
        .endr
        ret
        END site_crowd

        .data
        .p2align 3
number_of_calls:
        .quad   20000

        .section .note.GNU-stack, "", @progbits
