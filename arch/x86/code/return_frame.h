// SPDX-License-Identifier: MIT
// A system call for the tool, and a return path that needs no tool: the bytes of the call and the frame that
// rt_sigreturn restores everything from (Linux: arch/x86/include/uapi/asm/sigcontext.h and ucontext.h).
//
//            0f 05   syscall            the call; its number and arguments are put into the registers from outside
//            6a 0f   push  $15          rt_sigreturn: all registers and the signal mask come from the frame
//            58      pop   %rax
//            0f 05   syscall
//
//   rsp ->   uc_flags ...               the push goes to the word below, which rt_sigreturn does not read
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "arch/abi/thread_registers.h"

namespace uprobe::arch {

inline constexpr std::array<std::uint8_t, 7> kCallAndReturn = {0x0f, 0x05, 0x6a, 0x0f, 0x58, 0x0f, 0x05};
inline constexpr std::uint64_t kReturnOffset = 2;
// e_ident[EI_PAD] and what follows: bytes of an ELF header that no program reads.
inline constexpr std::uint64_t kElfPadding = 9;
static_assert(kElfPadding + kCallAndReturn.size() == 16);

struct ReturnFrame {
  std::uint64_t uc_flags, uc_link;
  std::uint64_t stack_base;
  std::int32_t stack_flags, stack_pad;
  std::uint64_t stack_size;
  std::uint64_t r8, r9, r10, r11, r12, r13, r14, r15;
  std::uint64_t di, si, bp, bx, dx, ax, cx, sp, ip, flags;
  std::uint16_t cs, gs, fs, ss;
  std::uint64_t error, trap_number, old_mask, fault_address;
  std::uint64_t fpstate;  // null: the state that a program begins with
  std::uint64_t reserved[8];
  std::uint64_t mask;
};
static_assert(offsetof(ReturnFrame, r8) == 40 && offsetof(ReturnFrame, ip) == 168);
static_assert(offsetof(ReturnFrame, fpstate) == 224 && offsetof(ReturnFrame, mask) == 296 &&
              sizeof(ReturnFrame) == 304);

// What a handler finds at its stack pointer (Linux: arch/x86/kernel/signal_64.c).
struct HandlerStack {
  std::uint64_t restorer;
  ReturnFrame context;
};
// Where the agent keeps the restorer that it has replaced: in the last of the words that the kernel neither writes nor reads.
inline std::uint64_t& kept_restorer(HandlerStack& stack) { return stack.context.reserved[7]; }

// Whether `words`, from the instruction pointer of a frame on, are those of a handler of a breakpoint instruction: the signal's
// information follows the frame (Linux: arch/x86/include/asm/sigframe.h, struct rt_sigframe).
bool is_of_breakpoint(std::span<const std::uint64_t> words);
// So many words before the instruction pointer a frame has the stack pointer of what was interrupted.
inline constexpr std::size_t kStackBeforeIp = (offsetof(ReturnFrame, ip) - offsetof(ReturnFrame, sp)) / 8;

// The frame of a thread that has no extended state yet.
ReturnFrame make_return_frame(const ThreadRegisters& registers, std::uint64_t mask);
// Whether it may be one that the kernel has written at `at`: it has the user's code segment, and its extended state not far above.
bool is_plausible(const ReturnFrame& frame, std::uint64_t at);

}  // namespace uprobe::arch
