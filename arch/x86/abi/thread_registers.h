// SPDX-License-Identifier: MIT
// The registers of a stopped thread, as ptrace gives and takes them, by what they are for. Tool side.
#pragma once

#include <sys/user.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace uprobe::arch {

using ThreadRegisters = user_regs_struct;

inline std::uint64_t instruction_pointer(const ThreadRegisters& r) { return r.rip; }
inline void set_instruction_pointer(ThreadRegisters& r, std::uint64_t to) { r.rip = to; }
inline std::uint64_t stack_pointer(const ThreadRegisters& r) { return r.rsp; }
inline void set_stack_pointer(ThreadRegisters& r, std::uint64_t to) { r.rsp = to; }
// What a thread's control block is found by.
inline std::uint64_t thread_pointer(const ThreadRegisters& r) { return r.fs_base; }

// Of a system call or a function: what it has returned.
inline std::int64_t result(const ThreadRegisters& r) { return static_cast<std::int64_t>(r.rax); }
inline void set_result(ThreadRegisters& r, std::int64_t to) { r.rax = static_cast<std::uint64_t>(to); }

// The system call that the thread is in; below 0: none.
inline std::int64_t call_number(const ThreadRegisters& r) { return static_cast<std::int64_t>(r.orig_rax); }
// The kernel takes the thread for one that is in no call, whatever its result looks like.
inline void forget_call(ThreadRegisters& r) { r.orig_rax = ~0ull; }

// Arguments of system calls, from 0 to 5.
using CallArguments = std::array<std::uint64_t, 6>;
using RegisterWord = unsigned long long;
inline RegisterWord& call_argument(ThreadRegisters& r, std::size_t index) {
  RegisterWord* const all[] = {&r.rdi, &r.rsi, &r.rdx, &r.r10, &r.r8, &r.r9};
  return *all[index];
}
inline std::uint64_t call_argument(const ThreadRegisters& r, std::size_t index) {
  return call_argument(const_cast<ThreadRegisters&>(r), index);
}
// The thread stands at the instruction of a system call, which it is about to make.
inline void set_call(ThreadRegisters& r, long number, const CallArguments& arguments) {
  set_result(r, number);
  for (std::size_t i = 0; i < arguments.size(); ++i) call_argument(r, i) = arguments[i];
}

// syscall, sysenter, int $0x80
inline constexpr std::uint64_t kCallBytes = 2;
// Where the instruction of the call is, to which the thread goes back if the call is restarted.
inline std::uint64_t call_place(const ThreadRegisters& r) { return r.rip - kCallBytes; }
// At the entry of a system call: it has not been made.
inline void take_call_back(ThreadRegisters& r) {
  r.rip = call_place(r);
  r.rax = r.orig_rax;
  forget_call(r);
}

// Flags that the tool's code must not be entered with: single steps, direction, nested task, alignment checks.
inline constexpr std::uint64_t kTrapFlag = 0x100, kDirectionFlag = 0x400, kNestedTask = 0x4000,
                               kAlignmentCheck = 0x40000;
inline void clear_modes(ThreadRegisters& r) {
  r.eflags &= ~(kTrapFlag | kDirectionFlag | kNestedTask | kAlignmentCheck);
}

// What stands on the stack when a function is entered.
struct EnteredFrame {
  std::uint64_t at, word;
};
// The thread enters a function of one argument, on a stack that ends at `stack`, and goes on at `back` when that returns.
inline EnteredFrame enter_function(ThreadRegisters& r, std::uint64_t function, std::uint64_t argument,
                                   std::uint64_t stack, std::uint64_t back) {
  r.rsp = (stack & ~std::uint64_t{15}) - sizeof back;
  r.rip = function;
  r.rdi = argument;
  return {r.rsp, back};
}

inline constexpr std::uint64_t kLongModeCodeSegment = 0x33;  // __USER_CS
// Whether the thread runs code of this machine, and not of an older mode of its.
inline bool runs_native_code(const ThreadRegisters& r) { return r.cs == kLongModeCodeSegment; }

}  // namespace uprobe::arch
