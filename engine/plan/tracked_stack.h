// SPDX-License-Identifier: MIT
// Where the stack pointer and the frame pointer are along a function's code, from the word that holds its return address.
#pragma once

#include <cstdint>
#include <optional>

#include "arch/code/stack_use.h"

namespace uprobe::plan {

// Distances from that word; nothing: not known.
struct TrackedStack {
  std::optional<std::int64_t> sp, frame;
  bool operator==(const TrackedStack&) const = default;
};

inline constexpr TrackedStack kStackAtEntry{0, std::nullopt};

// After an instruction.
TrackedStack stack_after(const arch::StackUse& use, const TrackedStack& before);
// What holds whichever of two ways control has come.
TrackedStack either(const TrackedStack& a, const TrackedStack& b);
// Whether the place is or overlaps the word; one whose address is taken: whether it is the word's.
bool is_return_address(const arch::StackPlace& place, const TrackedStack& stack);

}  // namespace uprobe::plan
