// SPDX-License-Identifier: MIT
// Where inlined copies begin. Internal to this folder.
//
// A place is right if control passes it once in each call of the function that was inlined there, as it passes a function's
// entry. Optimisers duplicate copies (unrolled loops, threaded jumps), merge them and move their code: what debug information calls
// the entry of a copy is then no such place, or one of several. Two kinds of evidence count:
//
//   a mark     gcc writes a row of the line table for each passage into a copy, at the function's declaration, with the view of
//              DW_AT_GNU_entry_view. It is duplicated with the code, and by optimisers that move it into both ways after it: a copy
//              begins at its mark if that is the only one, and if control comes to none of its code by a way around the mark.
//   the code   one range that all jumps from outside enter at its first instruction, without a loop, and in which the first row of
//              the line table does not come again.
//
// A copy inside of another one of its function is refused: gcc splits functions, and inlines both parts under the function's name.
#pragma once

#include <span>

#include "engine/dwarf/handles.h"

namespace uprobe::dwarf {

// Sets `found` of all copies that are in the code of one function and that are declared at one place of the source.
void find_starts(const DebugInfo::Handles& handles, std::span<DebugInfo::Handles::Copy* const> copies);

}  // namespace uprobe::dwarf
