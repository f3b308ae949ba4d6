// SPDX-License-Identifier: MIT
// Return stubs (engine/shared/return_stub.h) and what they lead to. Runs on the application's stack, below its red zone.
//
// A probed function returns into its stub, which puts the return address back where the function has popped it, records, and
// goes home by a jump: the call has one return already, with a second one the processor would foretell those of all callers
// wrongly.
//
// Signals that come while a thread is in here are put aside, as in entry.S. From uprobe_return_done on the return is recorded:
// who comes then is told that the thread stands at the return address (preload/stubs.cpp). For what has come before, an
// int3 of the agent's brings the thread there.
#define STUBS 16384                     /* shared::kReturnStubs, kStubUnit */
#define UNIT 32
        .macro LABEL name
        .globl  \name
        .hidden \name
\name:
        .endm

        .bss
        .p2align 6
        LABEL   uprobe_return_slots
        .type   uprobe_return_slots, @object
        .skip   STUBS * UNIT
        .size   uprobe_return_slots, STUBS * UNIT

        .text
        .p2align 6
        LABEL   uprobe_return_stubs
        .type   uprobe_return_stubs, @function
        .set    .Lnumber, 0
        .rept   STUBS
        int3
        pushq   (uprobe_return_slots + .Lnumber * UNIT)(%rip)
        leaq    -128(%rsp), %rsp
        .byte   0x68                    # pushq $number, of one length for all
        .long   .Lnumber
        .byte   0xe9                    # jmp uprobe_return_entry
        .long   uprobe_return_entry - . - 4
        .balign UNIT, 0xcc
        .set    .Lnumber, .Lnumber + 1
        .endr
        .size   uprobe_return_stubs, . - uprobe_return_stubs

// From rsp up: number, 128 bytes, the return address, the application's stack. All registers are the application's.
//
// Calls const u32* uprobe_on_return(u32 number, Registers*) with the register file (engine/shared/layout.h) in our frame; the
// result is the thread's pending word. Flags: only the arithmetic ones are changed.
        .globl  uprobe_return_entry
        .hidden uprobe_return_entry
        .type   uprobe_return_entry, @function
        .p2align 4
uprobe_return_entry:
        .cfi_startproc
        .cfi_def_cfa_offset 144
        pushq   -2048(%rsp)             # as much stack as recording can need: if there is none it shows here
        .cfi_adjust_cfa_offset 8
        leaq    -160(%rsp), %rsp
        .cfi_adjust_cfa_offset 160
        movq    %rax, (%rsp)
        movq    %rbx, 8(%rsp)
        movq    %rcx, 16(%rsp)
        movq    %rdx, 24(%rsp)
        movq    %rsi, 32(%rsp)
        movq    %rdi, 40(%rsp)
        movq    %rbp, 48(%rsp)
        movq    %r8, 64(%rsp)
        movq    %r9, 72(%rsp)
        movq    %r10, 80(%rsp)
        movq    %r11, 88(%rsp)
        movq    %r12, 96(%rsp)
        movq    %r13, 104(%rsp)
        movq    %r14, 112(%rsp)
        movq    %r15, 120(%rsp)
        pushfq
        popq    136(%rsp)
        testb   $4, 138(%rsp)           # AC: unaligned stores would fault
        jnz     3f
1:      leaq    312(%rsp), %rax         # after the return address
        movq    %rax, 56(%rsp)
        movl    %cs, %eax
        movq    %rax, 144(%rsp)
        movl    %ss, %eax
        movq    %rax, 152(%rsp)
        movq    $-1, 160(%rsp)          # orig_ax: as the kernel has it outside of system calls
        movl    168(%rsp), %edi
        movq    %rsp, %rsi
        call    uprobe_on_return
        testb   $4, 138(%rsp)
        jnz     4f
2:
        LABEL   uprobe_return_done
        cmpl    $0, (%rax)
        jne     5f
        movb    137(%rsp), %al          # OF
        movb    136(%rsp), %ah          # SF ZF AF PF CF
        shrb    $3, %al
        andb    $1, %al
        addb    $0x7f, %al
        sahf
        movq    88(%rsp), %r11
        movq    80(%rsp), %r10
        movq    72(%rsp), %r9
        movq    64(%rsp), %r8
        movq    40(%rsp), %rdi
        movq    32(%rsp), %rsi
        movq    24(%rsp), %rdx
        movq    16(%rsp), %rcx
        movq    (%rsp), %rax
        leaq    312(%rsp), %rsp
        .cfi_remember_state
        .cfi_def_cfa_offset 0
        LABEL   uprobe_return_leaves
        jmp     *-8(%rsp)
        .cfi_restore_state
        LABEL   uprobe_return_left
3:      pushfq
        andl    $~0x40000, (%rsp)
        popfq
        jmp     1b
4:      pushfq
        orl     $0x40000, (%rsp)
        popfq
        jmp     2b
5:      int3
        LABEL   uprobe_return_waits
        nop
        .cfi_endproc
        .size uprobe_return_entry, . - uprobe_return_entry

// int dl_iterate_phdr(callback, data), whose displaced first instruction r11 points to: shows the callback uprobe_own_object, and
// goes on there unless that was all that the callback wanted. Not the agent's in the sense of signals.
        .globl  uprobe_iterate
        .hidden uprobe_iterate
        .type   uprobe_iterate, @function
        .p2align 4
uprobe_iterate:
        .cfi_startproc
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %r11
        .cfi_adjust_cfa_offset 8
        movq    %rdi, %rax
        movq    %rsi, %rdx
        leaq    uprobe_own_object(%rip), %rdi
        movl    $32, %esi               # without the members that libgcc takes for a list that has not changed
        call    *%rax
        popq    %r11
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testl   %eax, %eax
        jnz     1f
        jmp     *%r11
1:      ret
        .cfi_endproc
        .size uprobe_iterate, . - uprobe_iterate
        LABEL   uprobe_iterate_end

        .bss
        .p2align 3
        LABEL   uprobe_own_object
        .skip   64
        .text

// Unwind information for all stubs at once: their return address is one less than their slot's root, which is looked up as it
// is ("S"), as the address of a call is. A stub has no frame of its own: without S the unwinder of libgcc would take it and
// its caller for one frame (uw_identify_context), with the root itself it would look after a call that ends its range.
        .section .eh_frame, "a", @unwind
        .p2align 3
1:      .long   3f - 2f
2:      .long   0                       # a CIE
        .byte   1
        .asciz  "zRS"
        .uleb128 1
        .sleb128 -8
        .uleb128 16                     # the return address
        .uleb128 1
        .byte   0x1b                    # pcrel, sdata4
        .byte   0x0c                    # DW_CFA_def_cfa: rsp + 0
        .uleb128 7
        .uleb128 0
        .p2align 3, 0
3:      .long   9f - 4f
4:      .long   4b - 1b
        .long   uprobe_return_stubs - .
        .long   STUBS * UNIT
        .uleb128 0
        .byte   0x16                    # DW_CFA_val_expression
        .uleb128 16
        .uleb128 8f - 5f
5:      .byte   0x80, 0                 # DW_OP_breg16 0
        .byte   0x09, 0xe0, 0x1a        # const1s -32, and: the stub (valgrind does not know "not")
6:      .byte   0x0d                    # const4s
        .long   uprobe_return_slots + 16 - .
        .byte   0x22                    # plus
7:      .byte   0x0d                    # const4s: the places that the two distances are from cancel out
        .long   uprobe_return_stubs - . + (7b - 6b)
        .byte   0x1c                    # minus
        .byte   0x06                    # deref
        .byte   0x31, 0x1c              # lit1 minus
8:
        .p2align 3, 0
9:
        .section .note.GNU-stack, "", @progbits
