// Functions that do the same, hit in different ways: long site(long, const char*, long) returns its first argument + 1.
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
        .irp n, call, disabled, fast0, fast3, fast_text, agent0, agent3, agent_text
        SITE hp_\n
        .endr

// What no hit can do without: room below the red zone, the registers that rdtsc and a store need, the clock, the words. No
// flag is touched, nothing says whose record it is or that there is one.
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
        .macro TEXT
        THREE_WORDS
        movq (%rsi), %rax
        movq %rax, 32(%rcx)
        movq 8(%rsi), %rax
        movq %rax, 40(%rcx)
        .endm
        .macro NOTHING
        .endm
        LIMIT hp_limit0, NOTHING
        LIMIT hp_limit3, THREE_WORDS
        LIMIT hp_limit_text, TEXT

        .bss
        .p2align 6
hp_words:
        .skip 64
        .section .note.GNU-stack, "", @progbits
