// SPDX-License-Identifier: MIT
// How control enters and leaves the agent, and the loads that may fault. Runs in the target, on whatever stack the kernel
// chose for the handler. Constraints: no vector register, no string instruction, no relocation, no writable data but the
// block slot.
//
//   application  --int3-->  kernel  --signal frame-->  uprobe_trap_entry
//                                                        | call uprobe_on_trap   (C++: finds the point, records)
//                                                        v
//     resume         xrstor the frame's extended state, all registers, iretq to the displaced copy: no system call
//     sigreturn      the kernel's way, where iretq would be wrong (shadow stack, SS_AUTODISARM, a mask to restore)
//     enter          the application's handler, with its frame and registers as the kernel would have made them
//
// Signals of the application that come while a thread is in here are put aside by uprobe_on_signal (a list of the thread,
// `pending`) and the thread goes on (resume_nested); on its way out it delivers them, oldest first. The last look at the
// list and the instruction that leaves form a window: a thread interrupted in it is sent back to the look. So no signal
// waits for the next hit, and no handler ever runs above a half-done hit.
//
// A handler is entered with rdi = signal, rsi = siginfo, rdx = ucontext, rsp = 8 mod 16, [rsp] = restorer; the frame is
// restorer, ucontext (304 bytes), siginfo. Offsets into the ucontext: see signal_frame.h. Its uc_link (offset 8, always 0
// from the kernel and not read by it) carries the address of the thread's pending word while the agent has the frame.

        .text

        .macro ENTRY name
        .globl \name
        .hidden \name
        .type \name, @function
        .p2align 4
\name:
        .endm

// The C++ functions return rax = one of these, or the address of a handler of the application, and rdx = its frame.
        .set    RESUME, 0
        .set    SIGRETURN, 1
        .set    RESUME_NESTED, 2
        .set    SIGRETURN_NESTED, 3

// The application's AC would make unaligned stores fault, its NT would break iretq. A popf is made only where one of them is set: a
// debugger that steps over one leaves the trap flag to the program (is_setting_trap_flag() in the kernel's step.c), unless the popf
// clears it. The kernel enters a handler without a trap flag, so it is never the program's.
        .macro CLEAR_FLAGS
        pushfq
        testl   $0x44000, (%rsp)
        leaq    8(%rsp), %rsp
        jz      9f
        pushfq
        andl    $~0x44100, (%rsp)
        popfq
9:
        .endm

        .macro HANDLER name, function
        ENTRY \name
        CLEAR_FLAGS
        pushq   %rdi
        pushq   %rsi
        pushq   %rdx
        call    \function
        popq    %r8                     # the ucontext
        addq    $16, %rsp
        cmpq    $SIGRETURN, %rax
        jb      resume
        je      sigreturn
        cmpq    $SIGRETURN_NESTED, %rax
        jb      resume_nested
        je      sigreturn_nested
        jmp     enter
        .size \name, . - \name
        .endm

        HANDLER uprobe_trap_entry, uprobe_on_trap
        HANDLER uprobe_fault_entry, uprobe_on_fault
        HANDLER uprobe_app_fault_entry, uprobe_on_app_fault
        HANDLER uprobe_signal_entry, uprobe_on_signal

// Leave the handler for the state in the ucontext at r8. iretq loads rip, cs, flags, rsp and ss at once, so the
// interrupted stack is not touched. Extended state: signal delivery reset it, the frame has the application's. The
// ucontext's address lies above what iretq takes, for who interrupts right there.
        .macro RESTORE
        movq    224(%r8), %rcx          # fpstate
        cmpl    $0x46505853, 464(%rcx)  # sw_reserved.magic1: an xsave frame
        jne     1f
        movq    472(%rcx), %rax         # sw_reserved.xfeatures
        movq    %rax, %rdx
        shrq    $32, %rdx
        xrstor64 (%rcx)
        jmp     2f
1:      fxrstor64 (%rcx)
2:      movq    48(%r8), %r9
        movq    56(%r8), %r10
        movq    64(%r8), %r11
        movq    72(%r8), %r12
        movq    80(%r8), %r13
        movq    88(%r8), %r14
        movq    96(%r8), %r15
        movq    104(%r8), %rdi
        movq    112(%r8), %rsi
        movq    120(%r8), %rbp
        movq    128(%r8), %rbx
        movq    136(%r8), %rdx
        movq    152(%r8), %rcx
        pushq   %r8
        movzwl  190(%r8), %eax          # ss
        pushq   %rax
        pushq   160(%r8)                # rsp
        pushq   176(%r8)                # flags
        movzwl  184(%r8), %eax          # cs
        pushq   %rax
        pushq   168(%r8)                # rip
        movq    144(%r8), %rax
        movq    40(%r8), %r8
        .endm

        .macro LABEL name
        .globl  \name
        .hidden \name
\name:
        .endm

        ENTRY resume
        LABEL uprobe_resume_look
        movq    8(%r8), %rcx
        cmpl    $0, (%rcx)
        jne     deliver
        RESTORE
        LABEL uprobe_resume_iretq
        iretq
        .size resume, . - resume

        ENTRY resume_nested
        RESTORE
        iretq
        .size resume_nested, . - resume_nested

        ENTRY sigreturn
        LABEL uprobe_sigreturn_look
        movq    8(%r8), %rcx
        cmpl    $0, (%rcx)
        jne     deliver
        movq    %r8, %rsp
        movl    $15, %eax
        LABEL uprobe_sigreturn_call
        syscall
        .size sigreturn, . - sigreturn

        ENTRY sigreturn_nested
        movq    %r8, %rsp
        movl    $15, %eax
        syscall
        .size sigreturn_nested, . - sigreturn_nested

// The oldest pending signal, in the name of the state in the ucontext at r8; rsp is at its frame.
        ENTRY deliver
        pushq   %r8
        movq    %r8, %rdi
        call    uprobe_deliver
        popq    %r8
        cmpq    $RESUME_NESTED, %rax    # the thread has to get to a place where a handler may see it
        je      resume_nested
        testq   %rax, %rax              # a handler that ran in between has delivered it
        jz      uprobe_sigreturn_look
        .size deliver, . - deliver      # falls into enter

// rax = handler, rdx = frame. More pending signals are put on top: their handlers interrupt this one at its first instruction.
// Our own code stays on the stack that it is on, where the frame has been moved from it: the application's may be full. For
// the same reason what is needed to the last lies in fields of the ucontext that no code reads (sigcontext.reserved1):
// 240: the handler, 248: our stack, 256: the pending word, of rsp. All other registers are those of the interrupted code.
        ENTRY enter
        xorl    %r9d, %r9d              # 0: the frame has not been moved
        cmpq    %rsp, %rdx
        cmovneq %rsp, %r9
enter_frame:
        movq    %rax, 240(%rdx)
        movq    %r9, 248(%rdx)
        movq    16(%rdx), %r10          # uc_link
        movq    %r10, 256(%rdx)
        movq    $0, 16(%rdx)
        movl    184(%rdx), %ecx         # AC and NT stay as they were; what else a handler does not inherit is cleared already
        andl    $0x44000, %ecx
        jz      2f
        pushfq
        andl    $~0x100, (%rsp)         # a debugger's, as in CLEAR_FLAGS
        orl     %ecx, (%rsp)
        popfq
2:      movq    %rdx, %rsp
        LABEL uprobe_enter_look
        movq    256(%rsp), %r10
        cmpl    $0, (%r10)
        jne     1f
        movq    48(%rsp), %r8
        movq    56(%rsp), %r9
        movq    64(%rsp), %r10
        movq    72(%rsp), %r11
        movq    160(%rsp), %rcx
        leaq    312(%rsp), %rsi
        movl    (%rsi), %edi
        leaq    8(%rsp), %rdx
        movl    $0, %eax
        LABEL uprobe_enter_jump
        jmp     *240(%rsp)
1:      movq    %rsp, %rsi
        leaq    -(128 + 440)(%rsp), %rdi
        andq    $-16, %rdi
        subq    $8, %rdi
        movq    240(%rsp), %rdx
        movq    248(%rsp), %r9
        movq    %r10, %rcx
        movq    %rdi, %rsp
        testq   %r9, %r9
        cmovneq %r9, %rsp
        andq    $-16, %rsp
        CLEAR_FLAGS
        pushq   %r9
        pushq   %r9
        call    uprobe_stack_signal     # (new frame, frame, handler, pending word)
        popq    %r9
        popq    %r9
        jmp     enter_frame
        .size enter, . - enter

// long uprobe_interruptible_call(const u32* attention, long number, a, b, c, d, e, f): a system call that is not made when
// *attention is set, however late; kNotMade then. A thread interrupted between the look and the call is sent to the end.
        ENTRY uprobe_interruptible_call
        movq    %rdi, %r11
        movq    %rsi, %rax
        movq    %rdx, %rdi
        movq    %rcx, %rsi
        movq    %r8, %rdx
        movq    %r9, %r10
        movq    8(%rsp), %r8
        movq    16(%rsp), %r9
        LABEL uprobe_call_look
        cmpl    $0, (%r11)
        jne     1f
        LABEL uprobe_call_syscall
        syscall
        ret
        LABEL uprobe_call_not_made
1:      movq    $-4096, %rax            # kNotMade
        ret
        .size uprobe_interruptible_call, . - uprobe_interruptible_call

// long uprobe_open_call(long number, a, b, c, d): a system call whose end counts as outside of the agent, so that handlers run
// at once that it lets in.
        ENTRY uprobe_open_call
        movq    %rdi, %rax
        movq    %rsi, %rdi
        movq    %rdx, %rsi
        movq    %rcx, %rdx
        movq    %r8, %r10
        syscall
        LABEL uprobe_open_call_end
        ret
        .size uprobe_open_call, . - uprobe_open_call

// Loads, and stores, that may fault: each faulting instruction has an entry in the table, uprobe_on_fault moves the thread
// to the fix-up. bool uprobe_peekN(u64 address, u64* out), bool uprobe_pokeN(u64 address, u64 value), bool uprobe_count_down(u64 address),
// u64 uprobe_peek_words(u64 address, u64* out, u64 count), bool uprobe_peek_thread4(i64 offset, u64* out), bool uprobe_clock(u64* out).
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

        .section .text.sorted.uprobe_rseq.1, "ax", @progbits  # callable from inside the rseq section (rseq.S)
        ENTRY uprobe_peek8
        .cfi_startproc
10:     movq    (%rdi), %rax
        movq    %rax, (%rsi)
        movl    $1, %eax
        ret
        .cfi_endproc
        .size uprobe_peek8, . - uprobe_peek8
        FAULTS  10b, peek_failed

        ENTRY uprobe_peek_word          # u64 (u64 address): 0 where there is no memory
        .cfi_startproc
19:     movq    (%rdi), %rax
        ret
        .cfi_endproc
        .size uprobe_peek_word, . - uprobe_peek_word
        FAULTS  19b, peek_failed

        ENTRY uprobe_peek1
        .cfi_startproc
11:     movzbl  (%rdi), %eax
        movq    %rax, (%rsi)
        movl    $1, %eax
        ret
        .cfi_endproc
        .size uprobe_peek1, . - uprobe_peek1
        FAULTS  11b, peek_failed

        ENTRY uprobe_peek_words         # u64 (u64 address, u64* out, u64 count): how many there were
        .cfi_startproc
        xorl    %eax, %eax
        jmp     9f
15:     movq    (%rdi,%rax,8), %rcx
        movq    %rcx, (%rsi,%rax,8)
        incq    %rax
9:      cmpq    %rdx, %rax
        jb      15b
peek_words_end:
        ret
        .cfi_endproc
        .size uprobe_peek_words, . - uprobe_peek_words
        FAULTS  15b, peek_words_end

        ENTRY uprobe_peek_thread4
        .cfi_startproc
12:     movl    %fs:(%rdi), %eax
        movq    %rax, (%rsi)
        movl    $1, %eax
        ret
        .cfi_endproc
        .size uprobe_peek_thread4, . - uprobe_peek_thread4
        FAULTS  12b, peek_failed

        ENTRY uprobe_clock              # rdtsc itself faults under PR_SET_TSC and strict seccomp
        .cfi_startproc
13:     rdtsc
        shlq    $32, %rdx
        orq     %rdx, %rax
        movq    %rax, (%rdi)
        movl    $1, %eax
        ret
        .cfi_endproc
        .size uprobe_clock, . - uprobe_clock
        FAULTS  13b, peek_failed

        .pushsection .text
        ENTRY uprobe_poke8
        .cfi_startproc
14:     movq    %rsi, (%rdi)
        movl    $1, %eax
        ret
        .cfi_endproc
        .size uprobe_poke8, . - uprobe_poke8
        FAULTS  14b, peek_failed
        .popsection

        .pushsection .text
        ENTRY uprobe_poke4
        .cfi_startproc
18:     movl    %esi, (%rdi)
        movl    $1, %eax
        ret
        .cfi_endproc
        .size uprobe_poke4, . - uprobe_poke4
        FAULTS  18b, peek_failed
        .popsection

        .pushsection .text
        ENTRY uprobe_count_down         # bool (u64 address): a u16, by 1 unless it is 0; false: it is not there
        .cfi_startproc
16:     movzwl  (%rdi), %eax
1:      testl   %eax, %eax
        jz      2f
        leal    -1(%rax), %ecx
17:     lock cmpxchgw %cx, (%rdi)
        jne     1b
2:      movl    $1, %eax
        ret
        .cfi_endproc
        .size uprobe_count_down, . - uprobe_count_down
        FAULTS  16b, peek_failed
        FAULTS  17b, peek_failed
        .popsection

peek_failed:
        xorl    %eax, %eax
        ret

        .pushsection .rodata.uprobe_faults, "a"
        .long   uprobe_rseq_abort - uprobe_fault_table
        .long   uprobe_rseq_faulted - uprobe_fault_table
        .long   0, 0                    # end of the table
        .popsection

        .text
        ENTRY uprobe_restorer
        movl    $15, %eax               # rt_sigreturn
        syscall
        .size uprobe_restorer, . - uprobe_restorer

// What the `syscall` of the visible restorer stands for when a handler has come back there.
        ENTRY uprobe_return_copy
        syscall
        .size uprobe_return_copy, . - uprobe_return_copy

// Where handlers return to that have a restorer without a point (preload/returns.cpp): the bytes by which unwinders and
// debuggers know the frame of a signal, in memory that can be read and not executed. Arriving there is a fault.
        .section .rodata.uprobe_returns, "a"
        .byte   0x90                    # who looks at the byte before a return address finds nothing of importance
        LABEL uprobe_visible_restorer
        .byte   0x48, 0xc7, 0xc0, 15, 0, 0, 0   # mov $15, %rax
        LABEL uprobe_visible_syscall
        .byte   0x0f, 0x05

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
        .long   22, 64                   # kAbiVersion
        .long   uprobe_block - uprobe_agent
        .long   uprobe_trap_entry - uprobe_agent
        .long   uprobe_fault_entry - uprobe_agent
        .long   uprobe_restorer - uprobe_agent
        .hidden __ehdr_start, etext     # the linker's
        .long   __ehdr_start - uprobe_agent
        .long   etext - uprobe_agent
        .long   uprobe_jump_entry - uprobe_agent
        .long   uprobe_visible_restorer - uprobe_agent
        .long   uprobe_attach_entry - uprobe_agent
        .long   uprobe_call_syscall + 2 - uprobe_agent
        .long   uprobe_call_not_made - uprobe_agent
        .long   0
        .size uprobe_agent, 64

        .section .note.GNU-stack, "", @progbits
