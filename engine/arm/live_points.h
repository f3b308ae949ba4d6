// SPDX-License-Identifier: MIT
// Adds points to a running program and removes them. Why that is safe: live_changes.h. (downgrade_to_int3.cpp: how jumps become
// breakpoints.)
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/arm/arm_state.h"
#include "engine/process/block.h"
#include "engine/target/target.h"

namespace uprobe::control {

// After an Error, which also means that a point had to be refused, remove what was added. `block`: the block's address.
Status add_points(ArmState& state, target::Target& target, Addr block, const ProbeSet& more);
// `is_live` says which events are left.
Status remove_points(ArmState& state, target::Target& target, Addr block,
                     const std::function<bool(std::uint16_t)>& is_live);

// Counts the semaphores of markers as the session wants them now. mend_semaphores: if the agent has counted some down, since this
// process gave no sign of life for a second; or if one is 0 again: a kernel uprobe that leaves takes down what the tool has put up.
Status count_semaphores(ArmState& state, target::Target& target, Addr block);
Status mend_semaphores(ArmState& state, target::Target& target, Addr block);

// A function of generated code, and the events that want its beginning.
struct WatchedPlace {
  Addr address;
  std::vector<std::uint8_t> code;  // the first bytes
  std::vector<std::uint16_t> events;
};
// Publishes a point for which a hardware breakpoint will stand (shared::PointState::watched), in a process that is stopped.
Status watch_point(ArmState& state, target::Target& target, Addr block, const WatchedPlace& place);

// Removes the consumers that do not stay from points, and points without consumers from the text. The cached mappings stay valid.
using StaysFn = std::function<bool(std::uint32_t point, const shared::Consumer&)>;
Status strip(ArmState& state, target::Target& target, Block& block, const StaysFn& stays);

// Turns jumps into breakpoints where a program is about to write to its code. A jump stands for several instructions, whose
// copies would run even after the program has changed the originals; a breakpoint displaces one instruction, and each hit
// checks the bytes after it.
struct Changed;
// The points `jumps` of the block, which must have been renewed. Room for new copies is found within reach of `reach`.
Status make_breakpoints(target::Target& target, Block& block, const Changed& reach,
                        std::span<const std::uint32_t> jumps);
// All jumps in a range of the process that has its block at `block`. The cached mappings stay valid.
Status take_jumps(ArmState& state, target::Target& target, Addr block, const Changed& range);

}  // namespace uprobe::control
