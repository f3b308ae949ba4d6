// SPDX-License-Identifier: MIT
// Byte patterns of system calls, for code of which neither symbols nor unwind information tell where functions begin.
#pragma once

#include <cstdint>
#include <optional>

#include "arch/code/relocate.h"
#include "arch/shared/text.h"

namespace uprobe::arch {

// The next bytes of a system call from code[from] on; its size: there are none.
std::size_t next_system_call(Bytes code, std::size_t from);
// Whether one whole instruction is one, without prefixes; or with.
bool is_system_call(Bytes insn);
bool ends_with_system_call(Bytes insn);

// The instruction that loads the number before a system call at code[at]: `mov $n,%eax`, `mov $n,%rax`, `push $n; pop %rax`
// or `xor %eax,%eax; mov $n,%al`; or `mov $n` to another register that is copied to rax from there; at most kNumberWindow bytes
// before; the nearest one.
struct NumberLoad {
  std::size_t position = 0, length = 0;
  std::uint32_t number = 0;
  bool outlives_calls = false;  // it is loaded to a register that the callee saves (System V ABI)
};
inline constexpr std::size_t kNumberWindow = 64;
std::optional<NumberLoad> number_before(Bytes code, std::size_t at);

// The load that ends right before code[end].
std::optional<NumberLoad> number_load_ending(Bytes code, std::size_t end);
// Whether the byte before code[at] may be a prefix (REX) of what begins there.
bool may_follow_prefix(Bytes code, std::size_t at);
// Whether that load ends with the instruction at code[at] and is not only the end of that one: `mov $8,%r8d` ends with the bytes
// of `mov $8,%eax`. The short forms are two instructions.
bool is_whole(const NumberLoad& load, std::size_t at);

// What one whole instruction loads into a register, a number; and from which one it takes the number of a call. Registers as they
// are encoded.
struct RegisterLoad {
  std::uint8_t reg = 0;
  std::uint32_t number = 0;
};
std::optional<RegisterLoad> register_load(Bytes insn);
std::optional<std::uint8_t> copied_to_number(Bytes insn);
// Whether one whole instruction loads the number of a call from memory that a register points to, and not from the stack, where Go
// has the numbers of all calls. A number from there is that of a call which every thread of a process makes: the set*id calls of
// glibc (nptl/nptl_setxid.c) and of musl (src/unistd/setxid.c).
bool loads_number_from_memory(Bytes insn);
inline constexpr std::size_t kGeneralRegisters = 16;

// Whether the instruction loads a number into the register of a call's number or of one of its first arguments, as the agent can make
// it in a thread's stead (load_at in arch/entry).
bool is_load_before_open(Bytes insn);
// The same of any constant (or address) that it loads, in at least as many bytes as a jump has.
bool is_load_before_call(Bytes insn);

// The system call at code[at] that musl makes all calls with that can be cancelled.
bool is_cancellable_call(Bytes code, std::size_t at);
// A function that makes whatever call its first argument names, and returns: nothing but moves between the two. In static musl
// all calls that can be cancelled are made there by a program that cancels no thread (src/thread/__syscall_cp.c, compiled).
bool is_any_call(Bytes code, std::size_t at, Addr address);
// Whether the number of a call stands anywhere in the code, as instructions have it.
bool names_call(Bytes code, std::uint32_t number);
// Whether the number of rt_sigreturn is loaded right before the system call at code[at], as unwinders know it.
bool is_signal_return(Bytes code, std::size_t at);

}  // namespace uprobe::arch
