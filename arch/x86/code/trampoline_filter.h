// SPDX-License-Identifier: MIT
// The part of a body that runs the event's filter. Internal to this folder.
//
// A filter of numbers that are in registers runs before the ring is touched; one of other numbers over the record once it is
// built, in front of its commit. Strings, sets and the task's name are the agent's.
#pragma once

#include <functional>
#include <optional>
#include <variant>

#include "arch/code/trampoline_record.h"

namespace uprobe::arch {

enum class FilterPlace { none, registers, record, agent };
FilterPlace filter_place(const FastRecord& fast);

// Where the program of the event has a field from, if that is a register and nothing else.
std::optional<shared::Reg> register_of(const FastRecord& fast, const shared::Test& test);

using Operand = std::variant<Gpr, Mem>;

// Appends the tests: to `pass` or `drop`, which may come next. `operand_of` may append what loads a number; `scratch` is free.
void run_tests(Assembler& a, std::span<const shared::Test> tests, Gpr scratch,
               const std::function<Operand(const shared::Test&)>& operand_of, Label& pass, Label& drop);

// rdi = where hits that the filter drops are counted, rsi = the new count. In the section: the row of a CPU is written by who is on
// it. ecx: the CPU, below the number of rows; rsi: the area. Uses rax.
void next_dropped(const FastRecord& fast, Assembler& a);

}  // namespace uprobe::arch
