// SPDX-License-Identifier: MIT
// Functions that do the same but are hit in different ways: long site(long, const char*, long) returns its first argument + 1.
        .text
        .macro SITE name
        .globl \name
        .type \name, @function
        .p2align 6
\name:  .byte 0x0f, 0x1f, 0x44, 0, 0    // a nop that a jump fits on
        leaq 1(%rdi), %rax
        ret
        .size \name, . - \name
        .endm
        .irp n, call, disabled, fast0, fast3, fast_text, agent0, agent3, agent_text, filtered, filtered_late, filtered_text
        SITE hp_\n
        .endr

// Hit at its beginning and before its return.
        .macro PAIR name
        .globl \name, at_return_\name
        .type \name, @function
        .p2align 6
\name:  .byte 0x0f, 0x1f, 0x44, 0, 0
        leaq 1(%rdi), %rax
at_return_\name:
        .byte 0x0f, 0x1f, 0x44, 0, 0
        ret
        .size \name, . - \name
        .endm
        .irp n, fast_pair, agent_pair
        PAIR hp_\n
        .endr

// The least that any hit needs: room below the red zone, the registers for rdtsc and a store, the clock, the words. It keeps no
// flags, and records neither the event nor that there is a record.
        .macro LIMIT name, words:vararg
        .globl \name
        .type \name, @function
        .p2align 6
\name:  jmp limit_\name
back_\name:
        leaq 1(%rdi), %rax
        ret
        .size \name, . - \name
        .p2align 6
limit_\name:
        leaq -128(%rsp), %rsp
        pushq %rax
        pushq %rdx
        pushq %rcx
        leaq hp_words(%rip), %rcx
        rdtsc
        movl %eax, (%rcx)
        movl %edx, 4(%rcx)
        \words
        popq %rcx
        popq %rdx
        popq %rax
        leaq 128(%rsp), %rsp
        jmp back_\name
        .endm
        .macro THREE_WORDS
        movq %rdi, 8(%rcx)
        movq %rsi, 16(%rcx)
        movq 8(%rsp), %rax
        movq %rax, 24(%rcx)
        .endm
// A string ends with its NUL at any place: byte by byte, and without a flag.
        .macro BYTE at
        movzbl \at(%rdx), %ecx
        movb %cl, \at(%rax)
        jrcxz 77f
        .endm
        .macro STRING distance
        leaq \distance(%rcx), %rax
        .irp at, 0, 1, 2, 3, 4, 5, 6, 7
        BYTE \at
        .endr
        jmp 76f
77:     jmp 78f                         // farther than jrcxz reaches
76:     .irp at, 8, 9, 10, 11, 12, 13, 14
        BYTE \at
        .endr
        movzbl 15(%rdx), %ecx
        movb %cl, 15(%rax)
        jmp 78f
77:
78:
        .endm
        .macro TEXT
        THREE_WORDS
        movq %rsi, %rdx
        STRING 32
        .endm
        .macro NOTHING
        .endm
        LIMIT hp_limit0, NOTHING
        LIMIT hp_limit3, THREE_WORDS
        LIMIT hp_limit_text, TEXT

// Twice: the entry, and the return with the value and the address.
        .macro LIMIT_HIT words:vararg
        leaq -128(%rsp), %rsp
        pushq %rax
        pushq %rdx
        pushq %rcx
        leaq hp_words(%rip), %rcx
        rdtsc
        movl %eax, (%rcx)
        movl %edx, 4(%rcx)
        \words
        popq %rcx
        popq %rdx
        popq %rax
        leaq 128(%rsp), %rsp
        .endm
        .macro RETURNED
        movq 16(%rsp), %rax
        movq %rax, 8(%rcx)
        movq 152(%rsp), %rax
        movq %rax, 16(%rcx)
        .endm
        .globl hp_limit_pair
        .type hp_limit_pair, @function
        .p2align 6
hp_limit_pair:
        jmp 3f
1:      leaq 1(%rdi), %rax
        jmp 4f
2:      ret
        .size hp_limit_pair, . - hp_limit_pair
        .p2align 6
3:      LIMIT_HIT NOTHING
        jmp 1b
        .p2align 6
4:      LIMIT_HIT RETURNED
        jmp 2b

// The same by hand with all that a correct record needs: registers and arithmetic flags kept, the CPU's ring found and written
// in an rseq section, room checked, the heads, the commit. It omits the work for a program that changes under the probe:
// whether recording is on, for which event, whether libc has registered rseq, vfork, and the announcement that lets a reader
// merge rings while they are written.
        .macro CORRECT name, payload, words:vararg
        .globl \name
        .type \name, @function
        .p2align 6
\name:  jmp correct_\name
back_\name:
        leaq 1(%rdi), %rax
        ret
        .size \name, . - \name
        .data
        .p2align 5
section_\name:                          // struct rseq_cs
        .long 0, 0
        .quad begin_\name, end_\name - begin_\name, abort_\name
        .text
        .byte 0x0f, 0xb9, 0x3d
        .long 0x53053053
abort_\name:
        jmp again_\name
        .p2align 6
correct_\name:
        leaq -128(%rsp), %rsp
        .irp reg, rax, rcx, rdx, rsi, rdi, r8
        pushq %\reg
        .endr
        lahf
        seto %al
        pushq %rax
again_\name:
        movq hp_rseq(%rip), %rdi
        leaq section_\name(%rip), %rax
        movq %rax, %fs:8(%rdi)
begin_\name:
        movl %fs:4(%rdi), %ecx
        movl %ecx, %edi
        shll $8, %edi
        addq hp_rings(%rip), %rdi
        movq (%rdi), %rsi
        rdtsc
        shlq $32, %rdx
        orq %rdx, %rax
        movq %rsi, %rdx
        shrq $32, %rdx
        subl 128(%rdi), %edx
        cmpl $(HP_RING_BYTES - 24 - \payload) / 8, %edx
        ja end_\name
        movl %ecx, %edx
        shlq $23, %rcx
        addq hp_data(%rip), %rcx
        movq %rsi, %r8
        shrq $29, %r8
        andl $HP_RING_BYTES - 8, %r8d
        addq %r8, %rcx
        movl $24 + \payload, (%rcx)
        movl %esi, 4(%rcx)
        movq %rax, 8(%rcx)
        movl $\payload, 16(%rcx)
        movl %edx, 20(%rcx)
        movl $0, 24(%rcx)
        movq hp_tid(%rip), %rax
        movl %fs:(%rax), %eax
        movl %eax, 28(%rcx)
        leaq \name(%rip), %rax
        movq %rax, 32(%rcx)
        \words
        leal 1(%rsi), %eax
        shrq $32, %rsi
        addl $(24 + \payload) / 8, %esi
        shlq $32, %rsi
        orq %rax, %rsi
        movq %rsi, (%rdi)
end_\name:
        movq hp_rseq(%rip), %rax
        movq $0, %fs:8(%rax)
        popq %rax
        addb $0x7f, %al
        sahf
        .irp reg, r8, rdi, rsi, rdx, rcx, rax
        popq %\reg
        .endr
        leaq 128(%rsp), %rsp
        jmp back_\name
        .endm
        .macro THREE_ARGUMENTS
        movq 16(%rsp), %rax
        movq %rax, 40(%rcx)
        movq 24(%rsp), %rax
        movq %rax, 48(%rcx)
        movq 32(%rsp), %rax
        movq %rax, 56(%rcx)
        .endm
        .macro TEXT_ARGUMENT
        THREE_ARGUMENTS
        movl $16 << 16 | 44, 64(%rcx)
        movq 24(%rsp), %rdx
        STRING 68
        .endm
        .set HP_RING_BYTES, 4 << 20
        CORRECT hp_correct0, 16, NOTHING
        CORRECT hp_correct3, 40, THREE_ARGUMENTS
        CORRECT hp_correct_text, 64, TEXT_ARGUMENT

        .bss
        .p2align 6
hp_words:
        .skip 64
        .irp n, hp_rings, hp_data, hp_rseq, hp_tid      // addresses; places from fs:0
        .globl \n
\n:     .skip 8
        .endr
        .section .note.GNU-stack, "", @progbits
