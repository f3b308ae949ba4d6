// SPDX-License-Identifier: MIT
// A better place for a probe of a return than the return instruction itself, which is short, and has other code right after it
// where a function has several.
#pragma once

#include <cstdint>

#include "engine/flow/flow.h"
#include "engine/plan/exits.h"

namespace uprobe::plan {

// By number, as shared::Reg has them.
using RegisterSet = std::uint32_t;

// The exit, or where a jump fits before it: at an instruction after which control can only go on to the return, past
// others that move nothing but the stack pointer and registers that are not in `wanted`. `lead` is set then.
Exit place_for(const FileFlow& flow, const Exit& exit, RegisterSet wanted);

}  // namespace uprobe::plan
