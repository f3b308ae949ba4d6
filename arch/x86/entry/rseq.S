// SPDX-License-Identifier: MIT
// The rseq section of the agent: a record is built in a CPU's ring and published by the section's last instruction.
//
//   uprobe_rseq_record --> [uprobe_rseq_begin: call uprobe_build_record ... movq commit] --> result
//         ^                          |  preempted, moved, a signal: the kernel continues at uprobe_rseq_abort
//         +--------------------------+
//
// The section is one range of addresses: linkers sort the input sections .text.sorted.* by name, so the compiled functions
// that build records (preload/agent.h, UPROBE_IN_SECTION) lie between its begin and its end below, and the commit comes last. Nothing in the range
// may call out of it: the kernel forgets a section whose thread it finds outside (arch/x86/CheckAgent.cmake looks). The same
// functions serve claimed rings; without a descriptor in rseq_cs the range means nothing.
//
// An abort finds any registers and any depth of calls. The compiled functions keep frame pointers, so rbp is a link of a
// chain at every instruction; the chain ends in our frame, whose link points to itself.
//
// A fault inside the section is an abort too: the kernel aborts before it builds the signal frame, so the handler sees
// uprobe_rseq_abort as the faulting address. Its entry in the fault table leads to uprobe_rseq_faulted.
//
// struct rseq (uapi/linux/rseq.h): 0 cpu_id_start, 4 cpu_id, 8 rseq_cs, 16 flags.
// struct rseq_cs: 0 version, flags; 8 start_ip; 16 post_commit_offset; 24 abort_ip. It holds addresses, so it is filled in
// by the first thread (all write the same): the agent has no relocations. abort_ip is written last.

#define RSEQ_SIGNATURE  0x53053053      /* libc's (RSEQ_SIG); stands before the abort address */

#define JOB_RSEQ        0               /* struct RseqJob, preload/ring.h */
#define JOB_RING        8
#define JOB_COMMIT      16
#define JOB_TRIES       24
#define GAVE_UP         100             /* kRseqGaveUp, kRseqFaulted */
#define FAULTED         101

        .text
        .globl uprobe_rseq_record
        .hidden uprobe_rseq_record
        .type uprobe_rseq_record, @function
        .p2align 4
// u32 uprobe_rseq_record(RseqJob*): what uprobe_build_record returned, or kRseqGaveUp, kRseqFaulted.
uprobe_rseq_record:
        .cfi_startproc
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rbp, 0
        .irp reg, rbx, r12, r13, r14, r15
        pushq   %\reg
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset \reg, 0
        .endr
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        leaq    -8(%rsp), %rax          # the frame that ends the chain
        pushq   %rax
        .cfi_adjust_cfa_offset 8
        movq    %rsp, %rbp
        .cfi_def_cfa rbp, 80
        leaq    uprobe_rseq_descriptor(%rip), %rbx
        cmpq    $0, 24(%rbx)
        je      fill
retry:  movq    8(%rbp), %rdi
        decl    JOB_TRIES(%rdi)
        js      gave_up
        movq    JOB_RSEQ(%rdi), %rax
        leaq    uprobe_rseq_descriptor(%rip), %rcx
        movq    %rcx, 8(%rax)
        jmp     uprobe_rseq_begin

fill:   movq    $0, (%rbx)
        leaq    uprobe_rseq_start(%rip), %rax
        movq    %rax, 8(%rbx)
        leaq    uprobe_rseq_end(%rip), %rcx
        subq    %rax, %rcx
        movq    %rcx, 16(%rbx)
        leaq    uprobe_rseq_abort(%rip), %rax
        movq    %rax, 24(%rbx)
        jmp     retry

// Handlers see the section at this address, with the registers it was interrupted with: the CFA is the end of the chain + 80. That has
// a link for each handler above another one, and its last link leads to itself: eight links are followed. (Without a loop, which would
// take DW_OP_dup: valgrind gives up where it finds that.)
//   breg6 0; deref, eight times; plus_uconst 80
        .cfi_remember_state
        .cfi_escape 0x0f, 12, 0x76, 0, 6, 6, 6, 6, 6, 6, 6, 6, 0x23, 80
        .byte   0x0f, 0xb9, 0x3d        # ud1 with the signature as its displacement
        .long   RSEQ_SIGNATURE
        .globl  uprobe_rseq_abort
        .hidden uprobe_rseq_abort
uprobe_rseq_abort:
        cmpq    %rbp, (%rbp)
        movq    (%rbp), %rbp            # the link of the last frame is its own address
        jne     uprobe_rseq_abort
        movq    %rbp, %rsp
        jmp     retry

        .globl  uprobe_rseq_faulted
        .hidden uprobe_rseq_faulted
uprobe_rseq_faulted:
        cmpq    %rbp, (%rbp)
        movq    (%rbp), %rbp
        jne     uprobe_rseq_faulted
        movq    %rbp, %rsp
        movl    $FAULTED, %eax
        jmp     leave
        .cfi_restore_state
gave_up:
        movl    $GAVE_UP, %eax
// A descriptor left behind would make a section of the same code when it builds a record in a claimed ring.
leave:  movq    8(%rbp), %rdi
        movq    JOB_RSEQ(%rdi), %rdi
        movq    $0, 8(%rdi)
        leaq    24(%rbp), %rsp
        .irp reg, r15, r14, r13, r12, rbx
        popq    %\reg
        .endr
        popq    %rbp
        .cfi_def_cfa rsp, 8
        ret
        .cfi_endproc
        .size uprobe_rseq_record, . - uprobe_rseq_record

        .section .text.sorted.uprobe_rseq.0, "ax", @progbits
        .globl  uprobe_rseq_start
        .hidden uprobe_rseq_start
uprobe_rseq_start:
        .byte   0x0f, 0x0b

        .section .text.sorted.uprobe_rseq.2, "ax", @progbits
        .globl  uprobe_rseq_begin
        .hidden uprobe_rseq_begin
        .type   uprobe_rseq_begin, @function
uprobe_rseq_begin:
        .cfi_startproc
        .cfi_def_cfa rbp, 80            # the frame of uprobe_rseq_record
        .cfi_offset rbp, -16
        .cfi_offset rbx, -24
        .cfi_offset r12, -32
        .cfi_offset r13, -40
        .cfi_offset r14, -48
        .cfi_offset r15, -56
        call    uprobe_build_record            # rdi = job
        testl   %eax, %eax              # 0: there is something to publish
        jne     leave
        movq    8(%rbp), %rdi
        movq    JOB_RING(%rdi), %rcx
        movq    JOB_COMMIT(%rdi), %rdx
        movq    %rdx, (%rcx)
        .globl  uprobe_rseq_end
        .hidden uprobe_rseq_end
uprobe_rseq_end:
        xorl    %eax, %eax
        jmp     leave
        .cfi_endproc
        .size   uprobe_rseq_begin, . - uprobe_rseq_begin

        .bss
        .p2align 5
uprobe_rseq_descriptor:
        .skip   32

        .section .note.GNU-stack, "", @progbits
