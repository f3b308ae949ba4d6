// SPDX-License-Identifier: MIT
// Real instructions, one row each, with their bytes by GNU as. Registers by the convention of Scene::data:
// rbx rbp rsi rdi r8 r12 r13 r14 point into memory, rcx and r9 are small, xmm14-15 and zmm30-31 hold small indices.
#pragma once

#include <span>

#include "tests/arch/machine.h"

namespace uprobe::arch::test {

struct InsnRow {
  const char* text;
  const char* bytes;
  const char* feature;  // in /proc/cpuinfo; "": every processor has it
  Scene scene = Scene::data;
  unsigned loose = 0;  // see Machine::compare
};

inline constexpr InsnRow kIntegerRows[] = {
#include "tests/arch/insns_integer.inc"
};
inline constexpr InsnRow kSystemRows[] = {
#include "tests/arch/insns_system.inc"
};
inline constexpr InsnRow kBranchRows[] = {
#include "tests/arch/insns_branch.inc"
};
inline constexpr InsnRow kFaultRows[] = {
#include "tests/arch/insns_fault.inc"
};
inline constexpr InsnRow kX87Rows[] = {
#include "tests/arch/insns_x87.inc"
};
inline constexpr InsnRow kSseRows[] = {
#include "tests/arch/insns_sse.inc"
};
inline constexpr InsnRow kAvxRows[] = {
#include "tests/arch/insns_avx.inc"
};
inline constexpr InsnRow kAvx512Rows[] = {
#include "tests/arch/insns_avx512.inc"
};
inline constexpr InsnRow kAvx512LaterRows[] = {
#include "tests/arch/insns_avx512_later.inc"
};
inline constexpr InsnRow kOtherVendorRows[] = {
#include "tests/arch/insns_amd.inc"
};

inline constexpr InsnRow kLaterRows[] = {
#include "tests/arch/insns_later.inc"
};

struct InsnGroup {
  const char* name;
  std::span<const InsnRow> rows;
};

inline constexpr InsnGroup kInsnGroups[] = {
    {"integer", kIntegerRows}, {"system", kSystemRows}, {"branch", kBranchRows}, {"x87", kX87Rows},
    {"sse", kSseRows},         {"avx", kAvxRows},       {"avx512", kAvx512Rows}, {"avx512_later", kAvx512LaterRows},
    {"amd", kOtherVendorRows}, {"fault", kFaultRows},   {"later", kLaterRows},
};

}  // namespace uprobe::arch::test
