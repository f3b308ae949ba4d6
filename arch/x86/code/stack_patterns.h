// SPDX-License-Identifier: MIT
// What single instructions do to the stack at the beginning and at the end of functions, by their bytes alone. Cheaper than
// stack_use(), and only for the forms that compilers write.
#pragma once

#include <cstdint>
#include <optional>

#include "arch/code/relocate.h"
#include "arch/shared/registers.h"

namespace uprobe::arch {

// How much a near return takes from the stack; 0: it is none.
std::uint16_t popped_by(Bytes code);

// What an instruction does to the stack pointer, as far as it matters for a return after it.
enum class StackMove { none, to_another, to_frame };
// A return after a move of the stack pointer to wherever is a jump in disguise: OCaml raises exceptions so, and contexts are
// switched so. After one to the function's own frame it is a return.
StackMove stack_move_of(Bytes code);

// An instruction before a return that takes words from the stack and does nothing else: it moves the stack pointer up, and changes
// one register, or the flags.
struct StackRelease {
  std::uint32_t moves;
  shared::Reg changed;
};
std::optional<StackRelease> stack_release(Bytes code);

// The register of `push %reg` and of `pop %reg`, as it is encoded; kNoRegister: it is another instruction.
inline constexpr unsigned kNoRegister = 16;
unsigned pushed_register(Bytes insn);
unsigned popped_register(Bytes insn);
// Whether the instruction makes room on the stack.
bool reserves_stack(Bytes insn);
// Whether the instruction, at a function's beginning, reads the return address from the stack or drops it.
bool uses_return_address(Bytes insn);

}  // namespace uprobe::arch
