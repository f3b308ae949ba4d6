// SPDX-License-Identifier: MIT
// What a body can record by itself, and where it finds the application's registers. Internal to this folder.
#pragma once

#include <cstdint>
#include <span>

#include "arch/code/assembler.h"
#include "arch/code/trampoline.h"

namespace uprobe::arch {

inline constexpr std::uint32_t kMostDynamic = 1024;  // bytes; longer strings are the agent's

// Whether it is an operand of 32 bits, which the processor extends by its sign.
constexpr bool fits(std::uint64_t value) {
  return static_cast<std::int64_t>(value) == static_cast<std::int32_t>(value);
}

// Where the application's register is: in a machine register, or in the frame.
struct Where {
  bool live = false;
  Gpr reg = rax;
  std::int32_t slot = -1;
};
Where where_is(shared::Reg reg);

// Appends what loads all flags into rax as they were at the probe point.
void load_flags(Assembler& a);

// Appends a jump to `to` where the tool has died. rsi: the area.
void leave_if_tool_is_gone(Assembler& a, Label& to);

// Whether records of the program have data of a length that only the hit knows.
bool has_dynamic(std::span<const shared::Insn> program);

// Whether a body can be generated for it at all; its filter is asked as well (trampoline_filter.h).
bool is_supported(const BodySpec& spec);

}  // namespace uprobe::arch
