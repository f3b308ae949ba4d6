// SPDX-License-Identifier: MIT
// Turns jumps into breakpoints where a program is about to write to its code. A jump stands for several instructions, whose
// copies would run even after the program has changed the originals; a breakpoint displaces one instruction, and each hit
// checks the bytes after it.
#pragma once

#include <cstdint>
#include <span>

#include "engine/arm/arm_state.h"
#include "engine/arm/process_arming.h"

namespace uprobe::control {

// The points `jumps` of the block, which must have been renewed. Room for new copies is found within reach of `reach`.
Status make_breakpoints(target::Target& target, Block& block, const Changed& reach,
                        std::span<const std::uint32_t> jumps);

// All jumps in a range of the process that has its block at `block`. The cached mappings stay valid.
Status take_jumps(ArmState& state, target::Target& target, Addr block, const Changed& range);

}  // namespace uprobe::control
