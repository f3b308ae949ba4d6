// SPDX-License-Identifier: MIT
// An rseq section that adds a call to a cell of its CPU (engine/shared/call_sums.h). All that it changes comes into force by its
// last instruction, so an interrupted section has done nothing.
//
// struct rseq and struct rseq_cs: see rseq.S. The descriptor holds addresses and is filled in by the first thread (all write the
// same): the agent has no relocations. abort_ip is written last.

#define RSEQ_SIGNATURE  0x53053053      /* libc's (RSEQ_SIG); stands before the abort address */

        .text
        .globl uprobe_add_on_cpu
        .hidden uprobe_add_on_cpu
        .type uprobe_add_on_cpu, @function
        .p2align 4
// bool uprobe_add_on_cpu(rseq rdi, u32 cpu esi, SumCell* rdx, u64 latency rcx, u64 self r8). False: the thread is on another CPU, or
// the section was interrupted; nothing has been added.
uprobe_add_on_cpu:
        .cfi_startproc
        leaq    uprobe_add_descriptor(%rip), %rax
        cmpq    $0, 24(%rax)
        je      2f
1:      movq    %rax, 8(%rdi)
.Lsection:
        cmpl    %esi, 4(%rdi)
        jne     3f
        movq    (%rdx), %rax            # count
        movl    %eax, %esi
        andl    $1, %esi
        addq    8(%rdx,%rsi,8), %rcx
        addq    24(%rdx,%rsi,8), %r8
        xorl    $1, %esi
        movq    %rcx, 8(%rdx,%rsi,8)
        movq    %r8, 24(%rdx,%rsi,8)
        addq    $1, %rax
        movq    %rax, (%rdx)
.Lsection_end:
        movq    $0, 8(%rdi)
        movl    $1, %eax
        ret
3:      movq    $0, 8(%rdi)
        xorl    %eax, %eax
        ret
2:      movq    $0, (%rax)
        leaq    .Lsection(%rip), %r9
        movq    %r9, 8(%rax)
        movq    $.Lsection_end - .Lsection, 16(%rax)
        leaq    .Linterrupted(%rip), %r9
        movq    %r9, 24(%rax)
        jmp     1b
        .byte   0x0f, 0xb9, 0x3d        # ud1 with the signature as its displacement
        .long   RSEQ_SIGNATURE
.Linterrupted:
        xorl    %eax, %eax
        ret
        .cfi_endproc
        .size uprobe_add_on_cpu, . - uprobe_add_on_cpu

        .bss
        .p2align 5
uprobe_add_descriptor:
        .skip   32

        .section .note.GNU-stack, "", @progbits
