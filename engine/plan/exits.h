// SPDX-License-Identifier: MIT
// Where a function is left: its returns, and the jumps to functions that return in its stead. All of them, or a reason.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/result.h"
#include "engine/flow/entries.h"
#include "engine/flow/flow.h"

namespace uprobe::plan {

struct Exit {
  std::uint64_t address = 0;   // link time
  std::uint16_t pops = 0;      // bytes that the return takes from the stack, its address included
  bool is_jump = false;        // to a function that returns later, to the same place
  std::uint16_t lead = 0;      // bytes that instructions from the address to the return take first: see exit_place.h
  std::uint32_t restored = 0;  // shared::Consumer::restored
};

// Of the function that begins at a link-time address, by address; at least one. Its parts that the compiler set apart (.cold)
// count. Code::refused where not every exit is known, or one may be another function's as well: the text reads on from the
// name of the function.
Result<std::vector<Exit>> exits_of(const FileFlow& flow, const FunctionEntries& entries, std::uint64_t entry);

}  // namespace uprobe::plan
