// SPDX-License-Identifier: MIT
// Byte patterns of system calls, for code of which neither symbols nor unwind information tell where functions begin.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace uprobe::plan {

// The instruction that loads the number before a `syscall` at code[at]: `mov $n,%eax`, `mov $n,%rax`, `push $n; pop %rax`
// or `xor %eax,%eax; mov $n,%al`; or `mov $n` to another register that is copied to rax from there; at most 64 bytes before; the nearest one.
struct NumberLoad {
  std::size_t position = 0, length = 0;
  std::uint32_t number = 0;
  bool outlives_calls = false;  // it is loaded to a register that the callee saves (System V ABI)
};
std::optional<NumberLoad> number_before(std::span<const std::uint8_t> code, std::size_t at);

// The load that ends right before code[end].
std::optional<NumberLoad> number_load_ending(std::span<const std::uint8_t> code, std::size_t end);

// What `mov $n,%reg32` loads, and where from `mov %reg,%rax` or `mov %reg,%eax` takes it, of one whole instruction. Registers as
// they are encoded.
struct RegisterLoad {
  std::uint8_t reg = 0;
  std::uint32_t number = 0;
};
std::optional<RegisterLoad> register_load(std::span<const std::uint8_t> insn);
std::optional<std::uint8_t> copied_to_ax(std::span<const std::uint8_t> insn);
// Whether one whole instruction loads rax or eax from memory that a register points to, and not from the stack, where Go has the
// numbers of all calls. A number from there is that of a call which every thread of a process makes: the set*id calls of glibc
// (nptl/nptl_setxid.c) and of musl (src/unistd/setxid.c).
bool loads_ax_from_memory(std::span<const std::uint8_t> insn);
inline constexpr std::size_t kRegisters = 16;

// Whether the calls with this number are the agent's business.
bool is_followed_call(std::uint32_t number);
bool is_clone_call(std::uint32_t number);
bool is_open_call(std::uint32_t number);

// The `syscall` at code[at] that musl makes all calls with that can be cancelled.
bool is_cancellable_call(std::span<const std::uint8_t> code, std::size_t at);

// A quick look at a part of a file: bytes of a followed call are somewhere in it. Most files have none and need not be read
// any further.
bool may_have_followed_calls(const std::string& path, std::uint64_t offset, std::uint64_t bytes);

}  // namespace uprobe::plan
