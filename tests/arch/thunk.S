// SPDX-License-Identifier: MIT
// machine_enter loads a whole machine state and jumps to the code under test; the code comes back to machine_exit, which
// stores the whole state before anything changes it. Offsets are those of MachineContext in machine.h.
//
// Nothing here touches the stack of the code under test, the bytes below it included: what must be kept at the exit
// goes to static memory first. Not reentrant.

        .set IN, 0
        .set OUT, 136
        .set HOST_RSP, 272
        .set ENTRY, 280
        .set XSAVE_IN, 288
        .set XSAVE_OUT, 296
        .set XSAVE_MASK, 304
        .set HOST_FSBASE, 312
        .set OUT_FSBASE, 320
        .set OUT_GSBASE, 328
        .set HAS_FSGSBASE, 336

        .text
        .globl machine_enter, machine_exit, machine_end
        .hidden machine_enter, machine_exit, machine_end
        .type machine_enter, @function
        .type machine_exit, @function

machine_enter:
        pushq %rbx
        pushq %rbp
        pushq %r12
        pushq %r13
        pushq %r14
        pushq %r15
        movq %rsp, HOST_RSP(%rdi)
        movq %rdi, context(%rip)
        movq ENTRY(%rdi), %rax
        movq %rax, entry(%rip)
        testb $1, HAS_FSGSBASE(%rdi)
        jz 1f
        rdfsbase %rax
        movq %rax, HOST_FSBASE(%rdi)
1:      movl XSAVE_MASK(%rdi), %eax
        movl XSAVE_MASK+4(%rdi), %edx
        movq XSAVE_IN(%rdi), %rcx
        xrstor64 (%rcx)
        pushq IN+128(%rdi)
        popfq
        movq IN+0(%rdi), %rax
        movq IN+8(%rdi), %rcx
        movq IN+16(%rdi), %rdx
        movq IN+24(%rdi), %rbx
        movq IN+32(%rdi), %rsp
        movq IN+40(%rdi), %rbp
        movq IN+48(%rdi), %rsi
        movq IN+64(%rdi), %r8
        movq IN+72(%rdi), %r9
        movq IN+80(%rdi), %r10
        movq IN+88(%rdi), %r11
        movq IN+96(%rdi), %r12
        movq IN+104(%rdi), %r13
        movq IN+112(%rdi), %r14
        movq IN+120(%rdi), %r15
        movq IN+56(%rdi), %rdi
        jmpq *entry(%rip)

machine_exit:
        movq %rsp, out_rsp(%rip)
        movq %rax, out_rax(%rip)
        movq context(%rip), %rax
        movq %rcx, OUT+8(%rax)
        movq %rdx, OUT+16(%rax)
        movq %rbx, OUT+24(%rax)
        movq %rbp, OUT+40(%rax)
        movq %rsi, OUT+48(%rax)
        movq %rdi, OUT+56(%rax)
        movq %r8, OUT+64(%rax)
        movq %r9, OUT+72(%rax)
        movq %r10, OUT+80(%rax)
        movq %r11, OUT+88(%rax)
        movq %r12, OUT+96(%rax)
        movq %r13, OUT+104(%rax)
        movq %r14, OUT+112(%rax)
        movq %r15, OUT+120(%rax)
        movq out_rax(%rip), %rcx
        movq %rcx, OUT+0(%rax)
        movq out_rsp(%rip), %rcx
        movq %rcx, OUT+32(%rax)
        movq HOST_RSP(%rax), %rsp
        pushfq
        popq OUT+128(%rax)
        pushq $0x202
        popfq
        movq %rax, %rbx
        movl XSAVE_MASK(%rbx), %eax
        movl XSAVE_MASK+4(%rbx), %edx
        movq XSAVE_OUT(%rbx), %rcx
        xsave64 (%rcx)
        fninit
        ldmxcsr host_mxcsr(%rip)
        testb $1, HAS_FSGSBASE(%rbx)
        jz 1f
        rdfsbase %rcx
        movq %rcx, OUT_FSBASE(%rbx)
        rdgsbase %rcx
        movq %rcx, OUT_GSBASE(%rbx)
        movq HOST_FSBASE(%rbx), %rcx
        wrfsbase %rcx
        xorl %ecx, %ecx
        wrgsbase %rcx
1:      popq %r15
        popq %r14
        popq %r13
        popq %r12
        popq %rbp
        popq %rbx
        retq
machine_end:

        .section .rodata
        .align 4
host_mxcsr:
        .long 0x1f80
        .lcomm context, 8
        .lcomm entry, 8
        .lcomm out_rsp, 8
        .lcomm out_rax, 8
        .section .note.GNU-stack, "", @progbits
