// SPDX-License-Identifier: MIT
// Where trampolines (arch/x86/code/trampoline.h) go with hits that they do not record themselves. Runs on the application's
// stack, below its red zone.
//
// Signals that come while a thread is in here are put aside, as in entry.S. From uprobe_jump_done on the hit is recorded: who
// comes then is told that the thread stands at the beginning of the copy (preload/trampolines.cpp). For what has come before,
// an int3 of the agent's brings the thread there.
//
// On entry: rdi = the slot's head, esi = 1 if a load of the hit is known to fault, + 2 on a switched stack; the direction flag as the
// application has it; rbx, rbp, r9..r15 still hold the application's values. The trampoline's frame:
//
//   [rsp]  return address       8 flags   16 r8   24 rdi   32 rsi   40 rdx   48 rcx   56 rax   64 copy   72 +128: red zone, then its rsp
//
// On a switched stack its rsp is the word at 72.
//
// Calls const u32* uprobe_on_jump(const SlotHead*, Registers*, u32) with the register file (engine/shared/layout.h) in our
// frame; the result is the thread's pending word. Before a call (kMakesCall), where less stack is to be used, uprobe_on_call, which has
// the trampoline's frame as well.
// Comes back with r9..r11 as the register file has them.
        .macro LABEL name
        .globl  \name
        .hidden \name
\name:
        .endm

        .text
        .globl  uprobe_jump_entry
        .hidden uprobe_jump_entry
        .type   uprobe_jump_entry, @function
        .p2align 4
uprobe_jump_entry:
        .cfi_startproc
        testb   %al, -2048(%rsp)        # as much stack as a hit can need: if there is none it shows here, before anything is done
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rbp, 0
        movq    %rsp, %rbp
        .cfi_def_cfa_register rbp
        subq    $168, %rsp
        andq    $-16, %rsp
        testb   $4, 18(%rbp)            # AC: unaligned stores would fault
        jnz     3f
1:      movq    %rsp, %rdx
        movq    64(%rbp), %rax
        movq    %rax, (%rdx)
        movq    %rbx, 8(%rdx)
        movq    56(%rbp), %rax
        movq    %rax, 16(%rdx)
        movq    48(%rbp), %rax
        movq    %rax, 24(%rdx)
        movq    40(%rbp), %rax
        movq    %rax, 32(%rdx)
        movq    32(%rbp), %rax
        movq    %rax, 40(%rdx)
        movq    (%rbp), %rax
        movq    %rax, 48(%rdx)
        leaq    208(%rbp), %rax         # 8 return address, 64 of the trampoline, 128, and our push of rbp
        testl   $2, %esi
        cmovnzq 80(%rbp), %rax
        movq    %rax, 56(%rdx)
        movq    24(%rbp), %rax
        movq    %rax, 64(%rdx)
        movq    %r9, 72(%rdx)
        movq    %r10, 80(%rdx)
        movq    %r11, 88(%rdx)
        movq    %r12, 96(%rdx)
        movq    %r13, 104(%rdx)
        movq    %r14, 112(%rdx)
        movq    %r15, 120(%rdx)
        movq    16(%rbp), %rax
        movq    %rax, 136(%rdx)         # flags; 128, the address, is the slot's
        movl    %cs, %eax
        movq    %rax, 144(%rdx)
        movl    %ss, %eax
        movq    %rax, 152(%rdx)
        movq    $-1, 160(%rdx)          # orig_ax: as the kernel has it outside of system calls
        xchgq   %rsi, %rdx              # (slot, registers, faulted)
        cmpl    $-2, 12(%rdi)           # kMakesCall
        je      6f
        call    uprobe_on_jump
        LABEL   uprobe_jump_done
        movq    72(%rsp), %r9
        movq    80(%rsp), %r10
        movq    88(%rsp), %r11
        cmpl    $0, (%rax)
        jne     5f
        testb   $4, 18(%rbp)
        jnz     4f
2:      movq    %rbp, %rsp
        LABEL   uprobe_jump_leaves
        popq    %rbp
        .cfi_remember_state
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        ret
        .cfi_restore_state
        LABEL   uprobe_jump_left
3:      pushfq
        andl    $~0x40000, (%rsp)
        popfq
        jmp     1b
        LABEL   uprobe_jump_late
4:      pushfq
        orl     $0x40000, (%rsp)
        popfq
        jmp     2b
5:      int3
        LABEL   uprobe_jump_waits
        nop
6:      leaq    16(%rbp), %rcx          # (slot, registers, faulted, frame)
        call    uprobe_on_call
        jmp     uprobe_jump_done
        .cfi_endproc
        .size uprobe_jump_entry, . - uprobe_jump_entry
        .globl  uprobe_jump_end
        .hidden uprobe_jump_end
uprobe_jump_end:

        .section .note.GNU-stack, "", @progbits
