// SPDX-License-Identifier: MIT
// Functions without unwind information, written by hand as a rule: whether what their own code shows is enough to know their
// returns.
#pragma once

#include <string>

#include "engine/flow/flow.h"

namespace uprobe::plan {

// Why not, as reads on from the function's name: "has no unwind information, and at 0x1234 a jump that leaves it". Empty: a symbol
// says where it begins and ends, its own branches lead to all that is in between and nowhere else, and at each return the stack
// pointer is where it was at the entry, on the return address that nothing has written over. Others that get in are not looked for.
std::string reason_against_bare(const FileFlow& flow, const SweptFunction& function);

}  // namespace uprobe::plan
