// SPDX-License-Identifier: MIT
// Code of a function that nothing known leads to: what a signal handler skips to, what a computed jump enters, what a compiler
// left over. It stands between an instruction after which control does not go on and the next one that control reaches, or
// the function's end; data may stand there just as well. It is taken for code only where
//   - it decodes from its beginning to its end exactly, one instruction after the other,
//   - nothing in the file reads from it, or makes or holds a pointer into it, and nothing uses the function's own bytes as
//     data: a table may be addressed from elsewhere than its beginning,
//   - the function does not look where it stands (call over; over: pop), by which it could find data,
//   - nothing in it looks like data: zeros, addresses, branches that lead into other instructions.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/flow/flow.h"
#include "engine/flow/reach.h"

namespace uprobe::plan {

struct Gap {
  std::vector<std::uint64_t> starts;  // of its instructions, ascending; the last one ends where the gap does
  const char* reason = nullptr;       // why it is not taken for code: then there are no starts
};

// The gap that holds the address, which is in the function and which control does not reach. `reach` has followed all of the
// file, `function` begins where an instruction starts for certain.
Gap gap_at(const FileFlow& flow, const Reach& reach, const elf::Range& function, std::uint64_t address);

}  // namespace uprobe::plan
