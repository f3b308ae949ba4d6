// SPDX-License-Identifier: MIT
// The stack of a hit: return addresses by the chain of frame pointers, and the data by which the tool unwinds by tables.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// Writes to `frames` the address of the hit and the return addresses of its frames, outermost last, at most `most`; returns the
// count. Reads only words of the stack above the stack pointer, and ends where a link does not lead further up. For a hit at
// the beginning of a function (kEventAtEntry), whose frame is not linked yet, the word at the stack pointer is the first return
// address. `places`, if given, gets the address of each.
u32 walk_stack(const Hit& hit, const Event& event, u64* frames, u32 most, u64* places = nullptr);

// The same by the unwind tables of the files that the code is of, where the tool has listed these (shared::CodeFile), and by a frame
// pointer only where no table describes the code. Also reads the tables.
u32 unwind_stack(const Hit& hit, const Event& event, u64* frames, u32 most);

// Writes a shared::StackHead and its data, with at most `copy_limit` bytes of the stack; at most shared::kMaxStack bytes in
// all. Returns the number of bytes, a multiple of 8.
u32 record_stack(const Hit& hit, const Event& event, u8* at, u32 copy_limit);

}  // namespace uprobe::agent
