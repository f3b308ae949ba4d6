// How control enters and leaves the agent, and the loads that may fault. Runs in the target, on whatever stack the kernel
// chose for the handler. Constraints: no vector register, no string instruction, no relocation, no writable data but the
// block slot.
//
//   application  --int3-->  kernel  --signal frame-->  uprobe_trap_entry
//                                                        | call uprobe_on_trap   (C++: finds the point, records)
//                                                        v
//        0: resume      xrstor the frame's extended state, all registers, iretq to the displaced copy: no system call
//        1: sigreturn   the kernel's way, where iretq would be wrong (shadow stack, SS_AUTODISARM, a mask to restore)
//        else           the application's own handler: tail jump with the kernel's arguments untouched
//
// A handler is entered with rdi = signal, rsi = siginfo, rdx = ucontext, rsp = 8 mod 16, [rsp] = restorer.
// Offsets into the ucontext: see signal_frame.h.

        .text

        .macro ENTRY name
        .globl \name
        .hidden \name
        .type \name, @function
        .p2align 4
\name:
        .endm

        .macro HANDLER name, function
        ENTRY \name
        pushfq                          # the application's AC would make unaligned stores fault, its NT would break iretq
        andl    $~0x44000, (%rsp)
        popfq
        pushq   %rdi
        pushq   %rsi
        pushq   %rdx
        call    \function
        popq    %rdx
        popq    %rsi
        popq    %rdi
        cmpq    $1, %rax
        jb      resume
        je      1f
        movq    %rax, %r11              # the application's handler: as if the kernel had called it
        xorl    %eax, %eax
        jmp     *%r11
1:      ret                             # to the restorer
        .size \name, . - \name
        .endm

        HANDLER uprobe_trap_entry, uprobe_on_trap
        HANDLER uprobe_fault_entry, uprobe_on_fault
        HANDLER uprobe_app_fault_entry, uprobe_on_app_fault

// Leave the handler for the state in the ucontext at rdx. iretq loads rip, cs, flags, rsp and ss at once, so the
// interrupted stack is not touched. Extended state: signal delivery reset it, the frame has the application's.
        ENTRY resume
        movq    224(%rdx), %rcx         # fpstate
        cmpl    $0x46505853, 464(%rcx)  # sw_reserved.magic1: an xsave frame
        jne     1f
        movq    472(%rcx), %rax         # sw_reserved.xfeatures
        movq    %rdx, %r8
        movq    %rax, %rdx
        shrq    $32, %rdx
        xrstor64 (%rcx)
        movq    %r8, %rdx
        jmp     2f
1:      fxrstor64 (%rcx)
2:      movq    40(%rdx), %r8
        movq    48(%rdx), %r9
        movq    56(%rdx), %r10
        movq    64(%rdx), %r11
        movq    72(%rdx), %r12
        movq    80(%rdx), %r13
        movq    88(%rdx), %r14
        movq    96(%rdx), %r15
        movq    104(%rdx), %rdi
        movq    112(%rdx), %rsi
        movq    120(%rdx), %rbp
        movq    128(%rdx), %rbx
        movq    152(%rdx), %rcx
        movl    %ss, %eax
        pushq   %rax
        pushq   160(%rdx)               # rsp
        pushq   176(%rdx)               # flags
        movl    %cs, %eax
        pushq   %rax
        pushq   168(%rdx)               # rip
        movq    144(%rdx), %rax
        movq    136(%rdx), %rdx
        iretq
        .size resume, . - resume

// Loads that may fault: each faulting instruction has an entry in the table, uprobe_on_fault moves the thread to the
// fix-up. bool uprobe_peekN(u64 address, u64* out), bool uprobe_peek_fs4(i64 offset, u64* out), bool uprobe_clock(u64* out).
        .macro FAULTS insn, fixup
        .pushsection .rodata.uprobe_faults, "a"
        .long   \insn - uprobe_fault_table
        .long   \fixup - uprobe_fault_table
        .popsection
        .endm

        .pushsection .rodata.uprobe_faults, "a"
        .p2align 3
        .globl uprobe_fault_table
        .hidden uprobe_fault_table
uprobe_fault_table:
        .popsection

        ENTRY uprobe_peek8
10:     movq    (%rdi), %rax
        movq    %rax, (%rsi)
        movl    $1, %eax
        ret
        .size uprobe_peek8, . - uprobe_peek8
        FAULTS  10b, peek_failed

        ENTRY uprobe_peek1
11:     movzbl  (%rdi), %eax
        movq    %rax, (%rsi)
        movl    $1, %eax
        ret
        .size uprobe_peek1, . - uprobe_peek1
        FAULTS  11b, peek_failed

        ENTRY uprobe_peek_fs4
12:     movl    %fs:(%rdi), %eax
        movq    %rax, (%rsi)
        movl    $1, %eax
        ret
        .size uprobe_peek_fs4, . - uprobe_peek_fs4
        FAULTS  12b, peek_failed

        ENTRY uprobe_clock              # rdtsc itself faults under PR_SET_TSC and strict seccomp
13:     rdtsc
        shlq    $32, %rdx
        orq     %rdx, %rax
        movq    %rax, (%rdi)
        movl    $1, %eax
        ret
        .size uprobe_clock, . - uprobe_clock
        FAULTS  13b, peek_failed

peek_failed:
        xorl    %eax, %eax
        ret

        .pushsection .rodata.uprobe_faults, "a"
        .long   0, 0                    # end of the table
        .popsection

        ENTRY uprobe_restorer
        movl    $15, %eax               # rt_sigreturn
        syscall
        .size uprobe_restorer, . - uprobe_restorer

        .bss
        .p2align 3
        .globl uprobe_block
        .hidden uprobe_block
uprobe_block:
        .skip   8
        .size uprobe_block, 8

// struct AgentHeader (engine/shared/agent_header.h)
        .section .rodata.uprobe_agent, "a"
        .p2align 3
        .globl uprobe_agent
        .type uprobe_agent, @object
uprobe_agent:
        .ascii  "upragnt1"
        .long   1, 64
        .long   uprobe_block - uprobe_agent
        .long   uprobe_trap_entry - uprobe_agent
        .long   uprobe_fault_entry - uprobe_agent
        .long   uprobe_restorer - uprobe_agent
        .long   0, 0, 0, 0, 0, 0, 0, 0
        .size uprobe_agent, 64

        .section .note.GNU-stack, "", @progbits
