// The functions that the traced program calls: the three kinds of places that the kernel's uprobes tell apart, a
// breakpoint of the program's own, and a crowd of 10,000 ordinary functions.

        .text

        .macro SITE name
        .globl  \name
        .type   \name, @function
        .p2align 4
\name:
        .endm

        SITE site_push                  # the kernel emulates a push
        pushq   %rbp
        popq    %rbp
        ret
        .size   site_push, . - site_push

        SITE site_move                  # the kernel single-steps it
        movq    %rdi, %rax
        ret
        .size   site_move, . - site_move

        SITE site_nop                   # since 6.18 the kernel turns it into a call
        .byte   0x0f, 0x1f, 0x44, 0x00, 0x00
        ret
        .size   site_nop, . - site_nop

        SITE site_trap
        int3
        ret
        .size   site_trap, . - site_trap

        .altmacro
        .macro  MEMBER number
        SITE crowd_\number
        pushq   %rbp
        movq    %rsp, %rbp
        leal    \number(%rdi), %eax
        popq    %rbp
        ret
        .size   crowd_\number, . - crowd_\number
        .endm

        .set    i, 0
        .rept   10000
        MEMBER  %i
        .set    i, i + 1
        .endr

        .section .note.GNU-stack, "", @progbits
