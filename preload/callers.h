// SPDX-License-Identifier: MIT
// Whether unwind information describes the code at an address. See callers.cpp.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// Whether a function that returns to `address` may return there through a stub: the instruction before it lies in a function
// that the file's unwind information covers (.eh_frame_hdr with a search table, as linkers make it), or the user insists. False
// if that cannot be shown: generated code, images of virtual machines, assembly code. Reads memory, any of which may be
// missing; reentrant at every instruction.
bool may_return_by_stub(const ProcessBlock& block, u64 address);

}  // namespace uprobe::agent
