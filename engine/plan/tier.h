// SPDX-License-Identifier: MIT
// How a thread gets from a probe point to its copy, as the user wants it.
#pragma once

#include <cstdint>

namespace uprobe::plan {

enum class Tier : std::uint8_t {
  automatic,   // by a jump where that is safe, else by a breakpoint
  breakpoint,  // never by a jump
  jump,        // probes that would need a breakpoint are refused
};

}  // namespace uprobe::plan
