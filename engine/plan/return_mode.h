// How a return probe gets at the returns of its function, as the user wants it.
#pragma once

#include <cstdint>

namespace uprobe::plan {

enum class ReturnMode : std::uint8_t {
  automatic,  // exits, or a refusal that says what a stub could do
  stub,       // the function returns to code of ours, which goes on to the caller
  exits,      // every return instruction is a point
};

}  // namespace uprobe::plan
