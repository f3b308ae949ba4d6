// SPDX-License-Identifier: MIT
// Whose code an address is in, as far as unwind information says it. See callers.cpp.
#pragma once

#include "preload/agent.h"

namespace uprobe::agent {

// Whether who returns to `address` may return there by way of a stub: the instruction in front of it is in a function that the
// unwind information of its file covers (.eh_frame_hdr with its search table, as linkers make it), or the user insists. What cannot be shown is false: generated code, images of virtual
// machines, code written by hand. Reads memory only, any of which may be missing; reentrant at every instruction.
bool may_return_by_stub(const ProcessBlock& block, u64 address);

}  // namespace uprobe::agent
