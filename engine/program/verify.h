// SPDX-License-Identifier: MIT
// The verifier: what a program must fulfil before an agent may run it. It knows nothing of how programs are made, so
// that a mistake of the compiler, or a program from elsewhere, is caught here and not in a traced process.
//
//   - every operation is known; every program ends with `end`, and only there
//   - an argument's instructions stand between one `begin` and the next: source, dereferences, one store, shifts
//   - a store stays inside the fixed part and off the record's head; no two arguments store to the same bytes
//   - sizes are 1, 2, 4, 8; counts are not 0; shifts are smaller than the element
//   - constant strings lie inside the text pool, end with their NUL and are no longer than a record allows
//   - the layout's fields are what the stores fill
//   - the filter, if there is one, is what verify_filter (filter.h) accepts
#pragma once

#include "engine/base/result.h"
#include "engine/program/layout.h"

namespace uprobe::program {

// Code::damaged with the index of the instruction.
Status verify(const EventProgram& program);

}  // namespace uprobe::program
