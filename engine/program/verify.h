// SPDX-License-Identifier: MIT
// The verifier: the conditions that a program fulfils before an agent may run it. It does not depend on how programs are made,
// so it finds a mistake of the compiler, or in a program from elsewhere, before a traced process runs it.
//
//   - every operation is known; every program ends with `end`, and `end` stands only there
//   - an argument's instructions stand between one `begin` and the next: source, dereferences, one store, shifts
//   - a store stays inside the fixed part and off the record's head; no two arguments store to the same bytes
//   - sizes are 1, 2, 4, 8; counts are not 0; shifts are smaller than the element
//   - constant strings lie inside the text pool, end with their NUL and are no longer than a record allows
//   - the layout's fields are exactly the stored bytes
//   - the filter, if there is one, passes verify_filter (filter.h)
#pragma once

#include "engine/base/result.h"
#include "engine/program/layout.h"

namespace uprobe::program {

// Code::damaged with the index of the instruction.
Status verify(const EventProgram& program);

}  // namespace uprobe::program
