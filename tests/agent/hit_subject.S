// SPDX-License-Identifier: MIT
// Functions with a place to probe, and one that shows all that a thread has before and after such a place.
//
// void hit_check(const HitState* in, HitState* out): loads every register, the flags, the vector registers, MXCSR and the red
// zone from `in`, runs the instruction at hit_site (rbx += 1), and stores what it then finds in `out`. Reentrant.
//
// HitState: 0 rax rbx rcx rdx rsi rdi rbp r8..r15 (15 words), 120 flags, 128 red zone (16 words), 256 ymm0..15, 768 mxcsr,
// 776 distance of rsp from what it was.
        .text
        .globl hit_check, hit_site, hit_simple, hit_simple_site, hit_load, hit_load_site, hit_foreign
        .p2align 4
        .type hit_check, @function
hit_check:
        pushq   %rbx
        pushq   %rbp
        pushq   %r12
        pushq   %r13
        pushq   %r14
        pushq   %r15
        pushq   %rsp
        pushq   %rsi
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        vmovdqu 256+32*\n(%rdi), %ymm\n
        .endr
        ldmxcsr 768(%rdi)
        pushq   120(%rdi)
        popfq
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        movq    128+8*\n(%rdi), %rax
        movq    %rax, -8-8*\n(%rsp)
        .endr
        movq    (%rdi), %rax
        movq    8(%rdi), %rbx
        movq    16(%rdi), %rcx
        movq    24(%rdi), %rdx
        movq    32(%rdi), %rsi
        movq    48(%rdi), %rbp
        movq    56(%rdi), %r8
        movq    64(%rdi), %r9
        movq    72(%rdi), %r10
        movq    80(%rdi), %r11
        movq    88(%rdi), %r12
        movq    96(%rdi), %r13
        movq    104(%rdi), %r14
        movq    112(%rdi), %r15
        movq    40(%rdi), %rdi
hit_site:                               # long enough for a jump
        {disp32} leaq 1(%rbx), %rbx
        xchgq   %rdi, (%rsp)            # rdi = out
        movq    %rax, (%rdi)
        movq    %rbx, 8(%rdi)
        movq    %rcx, 16(%rdi)
        movq    %rdx, 24(%rdi)
        movq    %rsi, 32(%rdi)
        movq    %rbp, 48(%rdi)
        movq    %r8, 56(%rdi)
        movq    %r9, 64(%rdi)
        movq    %r10, 72(%rdi)
        movq    %r11, 80(%rdi)
        movq    %r12, 88(%rdi)
        movq    %r13, 96(%rdi)
        movq    %r14, 104(%rdi)
        movq    %r15, 112(%rdi)
        movq    (%rsp), %rax
        movq    %rax, 40(%rdi)
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        movq    -8-8*\n(%rsp), %rax
        movq    %rax, 128+8*\n(%rdi)
        .endr
        pushfq
        popq    120(%rdi)
        pushq   $0x202
        popfq
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        vmovdqu %ymm\n, 256+32*\n(%rdi)
        .endr
        vzeroupper
        movl    $0, 768(%rdi)
        stmxcsr 768(%rdi)
        movq    8(%rsp), %rax           # rsp when it was pushed
        leaq    8(%rsp), %rcx
        subq    %rcx, %rax
        subq    $8, %rax
        movq    %rax, 776(%rdi)
        pushq   $0x1f80
        ldmxcsr (%rsp)
        addq    $24, %rsp
        popq    %r15
        popq    %r14
        popq    %r13
        popq    %r12
        popq    %rbp
        popq    %rbx
        ret
        .size hit_check, . - hit_check

// void hit_check_alike(const HitState* in, HitState* out): the same, with zeros in the registers that it saves and above
// them, for programs that look at the stack.
        .globl hit_check_alike
        .p2align 4
        .type hit_check_alike, @function
hit_check_alike:
        .irp reg, rbx, rbp, r12, r13, r14, r15
        pushq   %\reg
        .endr
        .irp reg, ebx, ebp, r12d, r13d, r14d, r15d
        xorl    %\reg, %\reg
        .endr
        .rept 32
        pushq   %rbx
        .endr
        call    hit_check
        addq    $256, %rsp
        .irp reg, r15, r14, r13, r12, rbp, rbx
        popq    %\reg
        .endr
        ret
        .size hit_check_alike, . - hit_check_alike

// long hit_simple(long value): value + 1
        .p2align 4
        .type hit_simple, @function
hit_simple:
hit_simple_site:
        leaq    1(%rdi), %rax
        ret
        .size hit_simple, . - hit_simple

// void hit_framed(): with a frame
        .globl hit_framed, hit_framed_site
        .p2align 4
        .type hit_framed, @function
hit_framed:
        subq    $40, %rsp
hit_framed_site:
        .byte 0x0f, 0x1f, 0x44, 0, 0
        addq    $40, %rsp
        ret
        .size hit_framed, . - hit_framed

// void hit_words(text, sequence, stream)
        .globl hit_words, hit_words_site
        .p2align 4
        .type hit_words, @function
hit_words:
hit_words_site:
        .byte 0x0f, 0x1f, 0x44, 0, 0    # a nop that a jump fits on
        ret
        .size hit_words, . - hit_words

// long hit_load(const long* from)
        .p2align 4
        .type hit_load, @function
hit_load:
        nop
hit_load_site:
        movq    (%rdi), %rax
        ret
        .size hit_load, . - hit_load

// A breakpoint of the program's own.
        .p2align 4
        .type hit_foreign, @function
hit_foreign:
        int3
        ret
        .size hit_foreign, . - hit_foreign

        .section .note.GNU-stack, "", @progbits
