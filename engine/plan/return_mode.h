// SPDX-License-Identifier: MIT
// How a return probe gets at the returns of its function, as the user wants it.
#pragma once

#include <cstdint>

namespace uprobe::plan {

enum class ReturnMode : std::uint8_t {
  automatic,  // exits; where they do not do, a stub
  stub,       // the function returns to code of the agent, which goes on to the caller
  exits,      // every return instruction is a point
};

}  // namespace uprobe::plan
