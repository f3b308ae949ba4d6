// SPDX-License-Identifier: MIT
// Functions whose returns are probed, each with a first instruction that is long enough for a jump.
        .macro FUNCTION name
        .globl  \name, \name\()_site
        .p2align 4
        .type   \name, @function
\name:
\name\()_site:
        .byte   0x0f, 0x1f, 0x44, 0, 0
        .endm
        .text

// Goes on to the function that return_target holds.
        FUNCTION return_thunk
        .cfi_startproc
        jmp     *return_target(%rip)
        .cfi_endproc
        .size return_thunk, . - return_thunk

// Takes its two arguments off the stack: rax = 2 * the first + the second.
        FUNCTION return_pops
        movq    8(%rsp), %rax
        addq    %rax, %rax
        addq    16(%rsp), %rax
        ret     $16
        .size return_pops, . - return_pops

// long return_call_pops(long, long): calls it. -1: the stack is not what it was.
        .globl  return_call_pops
        .p2align 4
        .type   return_call_pops, @function
return_call_pops:
        pushq   %rbx
        movq    %rsp, %rbx
        pushq   %rsi
        pushq   %rdi
        call    return_pops
        cmpq    %rbx, %rsp
        movq    %rbx, %rsp
        popq    %rbx
        jne     1f
        ret
1:      movq    $-1, %rax
        ret
        .size return_call_pops, . - return_call_pops

// long return_to_data(long word): comes to return_thunk by a jump, with a word on the stack that is no return address and
// the real one after it.
        .globl  return_to_data, return_takes_word
        .p2align 4
return_to_data:
        pushq   %rdi
        jmp     return_thunk
return_takes_word:
        popq    %rax
        ret

// What return_thunk goes on to: goes to it again until rdi is 0.
        .globl  return_again
        .p2align 4
return_again:
        xorl    %eax, %eax
        decq    %rdi
        jns     return_thunk
        ret

// void return_state(const ReturnState* in, ReturnState* out): loads all registers from `in`, calls return_loaded, and stores
// what it then finds in `out`. ReturnState: 0 rax rbx rcx rdx rsi rdi rbp r8..r15 (15 words), 120 flags, 128 ymm0..15,
// 640 the 16 words below the stack pointer; 768 st0.
        FUNCTION return_loaded
        movq    in(%rip), %rax
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        vmovdqu 128+32*\n(%rax), %ymm\n
        .endr
        fldt    768(%rax)
        .irp n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        movq    640+8*\n(%rax), %rbx
        movq    %rbx, -8*\n(%rsp)
        .endr
        movq    8(%rax), %rbx
        movq    16(%rax), %rcx
        movq    24(%rax), %rdx
        movq    32(%rax), %rsi
        movq    40(%rax), %rdi
        movq    48(%rax), %rbp
        movq    56(%rax), %r8
        movq    64(%rax), %r9
        movq    72(%rax), %r10
        movq    80(%rax), %r11
        movq    88(%rax), %r12
        movq    96(%rax), %r13
        movq    104(%rax), %r14
        movq    112(%rax), %r15
        pushq   120(%rax)
        movq    (%rax), %rax
        popfq
        ret
        .size return_loaded, . - return_loaded

        .globl  return_state
        .p2align 4
        .type   return_state, @function
return_state:
        pushq   %rbx
        pushq   %rbp
        pushq   %r12
        pushq   %r13
        pushq   %r14
        pushq   %r15
        movq    %rdi, in(%rip)
        movq    %rsi, out(%rip)
        movq    %rsp, stack(%rip)
        call    return_loaded
        pushq   %rax
        movq    out(%rip), %rax
        popq    (%rax)
        movq    %rbx, 8(%rax)
        movq    %rcx, 16(%rax)
        movq    %rdx, 24(%rax)
        movq    %rsi, 32(%rax)
        movq    %rdi, 40(%rax)
        movq    %rbp, 48(%rax)
        movq    %r8, 56(%rax)
        movq    %r9, 64(%rax)
        movq    %r10, 72(%rax)
        movq    %r11, 80(%rax)
        movq    %r12, 88(%rax)
        movq    %r13, 96(%rax)
        movq    %r14, 104(%rax)
        movq    %r15, 112(%rax)
        .irp n, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        movq    -8-8*\n(%rsp), %rbx
        movq    %rbx, 640+8*\n(%rax)
        .endr
        pushfq
        popq    120(%rax)
        pushq   $0x202
        popfq
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        vmovdqu %ymm\n, 128+32*\n(%rax)
        .endr
        vzeroupper
        fstpt   768(%rax)
        subq    %rsp, stack(%rip)       # 0
        movq    stack(%rip), %rbx
        movq    %rbx, 640(%rax)
        popq    %r15
        popq    %r14
        popq    %r13
        popq    %r12
        popq    %rbp
        popq    %rbx
        ret
        .size return_state, . - return_state

        .bss
        .p2align 3
        .globl  return_target
return_target:
        .skip   8
in:     .skip   8
out:    .skip   8
stack:  .skip   8
        .section .note.GNU-stack, "", @progbits
