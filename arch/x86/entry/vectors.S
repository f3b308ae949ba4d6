// SPDX-License-Identifier: MIT
// The application's vector registers, where no signal frame has them: a hit by jump, or a return by a stub, runs on with
// whatever the application left in them, since the agent is compiled for general registers only. Nothing here changes one:
// arch/x86/CheckAgent.cmake looks.
//
// void uprobe_store_xmm(u32 number, u64 (&to)[2]), void uprobe_store_ymm(u32 number, u64 (&to)[4]); number < 16. Part of the
// rseq section's callable range (rseq.S).
        .macro ENTRY name
        .globl  \name
        .hidden \name
        .type   \name, @function
        .p2align 4
\name:
        .endm

// One row of 8 bytes for each register: a store has up to 5 (a VEX prefix of three bytes, opcode, ModRM).
        .macro ROWS instruction, bank
        leaq    1f(%rip), %rax
        movl    %edi, %edi
        leaq    (%rax, %rdi, 8), %rax
        jmp     *%rax
        .p2align 3
1:      .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        \instruction %\bank\number, (%rsi)
        ret
        .p2align 3
        .endr
        .endm

        .section .text.sorted.uprobe_rseq.1, "ax", @progbits
        ENTRY   uprobe_store_xmm
        .cfi_startproc
        ROWS    movups, xmm
        .cfi_endproc
        .size   uprobe_store_xmm, . - uprobe_store_xmm

        ENTRY   uprobe_store_ymm
        .cfi_startproc
        ROWS    vmovups, ymm
        .cfi_endproc
        .size   uprobe_store_ymm, . - uprobe_store_ymm

        .globl  uprobe_vectors_end
        .hidden uprobe_vectors_end
uprobe_vectors_end:
        int3

        .section .note.GNU-stack, "", @progbits
