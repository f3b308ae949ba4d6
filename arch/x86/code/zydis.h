// SPDX-License-Identifier: MIT
// What those here that use Zydis share: decode.cpp, scan.cpp, stack_use.cpp.
#pragma once

#include <Zydis/Zydis.h>

#include "arch/code/decode.h"

namespace uprobe::arch {

const ZydisDecoder& decoder();

Flow flow_of(const ZydisDecodedInstruction& insn);

// Whether the next instruction can run after this one. A system call and int n come back; the rest of the traps do not
// (int3 is what compilers put where control never goes).
bool falls_through(const ZydisDecodedInstruction& insn, Flow flow);

}  // namespace uprobe::arch
