// SPDX-License-Identifier: MIT
// What compilers do with instructions when they rearrange code.
#pragma once

#include "arch/code/relocate.h"

namespace uprobe::arch {

// Whether the instruction at the start of the bytes computes several numbers at once: what compilers make of a few turns of a
// loop, or of equal steps after one another. Copies of whole registers, and a register that is set to zero, are no computation.
bool computes_packed(Bytes bytes);

// Whether the instruction only computes registers: it writes no memory, and control goes on after it. Compilers may run it where the
// source does not.
bool just_computes(Bytes bytes);

}  // namespace uprobe::arch
