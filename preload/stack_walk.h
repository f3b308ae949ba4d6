// SPDX-License-Identifier: MIT
// The stack of a hit: return addresses by the chain of frame pointers, and what the tool needs to unwind by tables.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// `frames` gets the address of the hit and those that it will return to, outermost last, `most` at most; returns how many. Reads
// nothing but words of the stack above the stack pointer, and ends where a link does not lead further up. Of a hit at the
// beginning of a function (kEventAtEntry), whose frame is not linked yet, the word at the stack pointer is the first return address.
// `places`, if given, gets where each of them lies.
u32 walk_stack(const Hit& hit, const Event& event, u64* frames, u32 most, u64* places = nullptr);

// A shared::StackHead and what follows it, with at most `copy_limit` bytes of the stack; at most shared::kMaxStack bytes in all.
// Returns how many, a multiple of 8.
u32 record_stack(const Hit& hit, const Event& event, u8* at, u32 copy_limit);

}  // namespace uprobe::agent
