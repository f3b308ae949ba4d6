// SPDX-License-Identifier: MIT
// Where inlined copies begin. Internal to this folder.
//
// A place is right if control passes it once in each call of the function that was inlined there, as it passes a function's
// entry. Optimisers duplicate copies (unrolled loops, threaded jumps), merge them and move their code: what debug information calls
// the entry of a copy is then no such place, or one of several. Two kinds of evidence count:
//
//   a mark     gcc writes a row of the line table for each passage into a copy, at the function's declaration, with the view of
//              DW_AT_GNU_entry_view. It is duplicated with the code: a copy begins at each of its marks.
//   the code   one range that all jumps from outside enter at its first instruction, without a loop, and in which the first row of
//              the line table does not come again.
#pragma once

#include <span>
#include <vector>

#include "engine/dwarf/handles.h"

namespace uprobe::dwarf {

// Sets `found` of all copies that are in the code of one function and that are declared at one place of the source. `further`: gets
// those that the compiler has made of one of them.
void find_starts(const DebugInfo::Handles& handles, std::span<DebugInfo::Handles::Copy* const> copies,
                 std::vector<DebugInfo::Handles::Copy>& further);

}  // namespace uprobe::dwarf
