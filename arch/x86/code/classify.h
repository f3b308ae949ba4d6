// SPDX-License-Identifier: MIT
// The allow-list: which instructions may be displaced, and how. Internal to this folder and its tests.
#pragma once

#include "arch/code/decode.h"

namespace uprobe::arch {

// How a copy is made.
enum class Form : std::uint8_t {
  plain,          // the same bytes, rip-relative displacement adjusted, then the jump back
  last,           // the same, but control never falls through: ret, indirect jmp, what only faults
  jump,           // jmp rel32
  jump_if,        // jcc rel32, jump back
  loop,           // a short branch over the jump back to a jmp rel32
  call,           // push the return address, jmp rel32
  call_indirect,  // push the return address, jmp through the same operand
  call_on_stack,  // the same, where the operand may lie in what the return address overwrites: read it first
  transaction,    // xbegin rel32, jump back
  system_call,    // syscall, rcx as the original would leave it, jump back
};

// The form of the copy, or Code::refused with the reason.
Result<Form> classify(const Decoded& insn);

// The allow-list by its rows ("AVX2", "I86 BINARY", "cpuid", "RTM branch") and the row that admits an instruction,
// empty when none does: the tests hold every row to have an instruction that they ran.
std::vector<std::string> allow_list_rows();
std::string allow_list_row(const Decoded& insn);

}  // namespace uprobe::arch
