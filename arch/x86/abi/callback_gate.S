// SPDX-License-Identifier: MIT
// See callback_gate.h. The unwind rules hold while the callback runs: they find the caller's registers in the CallbackEntry, whose
// place %rbx knows. Before and after that an unwinder finds no caller.

        .macro pop_registers
        popq    %rax
        popq    %rcx
        popq    %rdx
        popq    %rbx
        popq    %rbp
        popq    %rsi
        popq    %rdi
        popq    %r8
        popq    %r9
        popq    %r10
        popq    %r11
        popq    %r12
        popq    %r13
        popq    %r14
        popq    %r15
        popfq
        leaq    72(%rsp), %rsp          # at CallbackEntry::resume; no flag changes
        .endm

        .text
        .globl uprobe_callback_gate
        .hidden uprobe_callback_gate
        .type uprobe_callback_gate, @function
        .p2align 4
uprobe_callback_gate:
        .cfi_startproc
        .cfi_undefined %rip
        pushfq
        cld
        pushq   %r15
        pushq   %r14
        pushq   %r13
        pushq   %r12
        pushq   %r11
        pushq   %r10
        pushq   %r9
        pushq   %r8
        pushq   %rdi
        pushq   %rsi
        pushq   %rbp
        pushq   %rbx
        pushq   %rdx
        pushq   %rcx
        pushq   %rax
        movq    %rsp, %rbx
        subq    uprobe_callback_state_bytes(%rip), %rsp
        andq    $-64, %rsp
        xorl    %eax, %eax
        movq    %rax, 512(%rsp)         # the header: XSAVE leaves what it does not write
        movq    %rax, 520(%rsp)
        movq    %rax, 528(%rsp)
        movq    %rax, 536(%rsp)
        movq    %rax, 544(%rsp)
        movq    %rax, 552(%rsp)
        movq    %rax, 560(%rsp)
        movq    %rax, 568(%rsp)
        movl    $-1, %eax
        movl    $-1, %edx
        xsave64 (%rsp)
        movq    %rsp, %r12
        movq    %rbx, %rdi
        movq    %rsp, %rsi
        .cfi_remember_state
        // DW_CFA_def_cfa_expression: DW_OP_breg3 144 (caller_sp), DW_OP_deref
        .cfi_escape 0x0f, 0x04, 0x73, 0x90, 0x01, 0x06
        // DW_CFA_expression for rip (caller_ip, 136), rbx, rbp, r12 .. r15 (kept, from 152 on)
        .cfi_escape 0x10, 0x10, 0x03, 0x73, 0x88, 0x01
        .cfi_escape 0x10, 0x03, 0x03, 0x73, 0x98, 0x01
        .cfi_escape 0x10, 0x06, 0x03, 0x73, 0xa0, 0x01
        .cfi_escape 0x10, 0x0c, 0x03, 0x73, 0xa8, 0x01
        .cfi_escape 0x10, 0x0d, 0x03, 0x73, 0xb0, 0x01
        .cfi_escape 0x10, 0x0e, 0x03, 0x73, 0xb8, 0x01
        .cfi_escape 0x10, 0x0f, 0x03, 0x73, 0xc0, 0x01
        call    uprobe_callback_dispatch
        .globl uprobe_callback_dispatched
        .hidden uprobe_callback_dispatched
uprobe_callback_dispatched:
        movzbl  %al, %r13d
        .cfi_restore_state
        movl    $-1, %eax
        movl    $-1, %edx
        xrstor64 (%r12)
        movq    %rbx, %rsp
        testl   %r13d, %r13d
        jne     1f
        pop_registers
        ret     $128
1:      pop_registers
        ret     $136                    # and over the return address, which `resume` is
        .cfi_endproc
        .size uprobe_callback_gate, . - uprobe_callback_gate

        .data
        .globl uprobe_callback_state_bytes
        .hidden uprobe_callback_state_bytes
        .p2align 3
uprobe_callback_state_bytes:
        .quad   0

        .section .note.GNU-stack, "", @progbits
