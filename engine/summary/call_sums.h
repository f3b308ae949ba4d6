// SPDX-License-Identifier: MIT
// A copy of the sums of an event's calls at one moment (engine/shared/call_sums.h), read from memory that the target can write.
// Nothing in it is trusted: for any contents of rows and cells, each bucket of a row counts once, and the copy has no more entries
// than there are buckets.
#pragma once

#include <cstdint>
#include <map>

#include "engine/trace/area.h"

namespace uprobe::summary {

struct CallSums {
  struct Sum {
    std::uint64_t count = 0, total = 0, self = 0;  // nanoseconds
  };
  std::uint64_t began = 0;             // calls
  std::map<std::uint64_t, Sum> times;  // by the lowest latency of a bucket; buckets without calls are left out

  std::uint64_t timed() const;  // calls in `times`
};

// Adds what the rows of all CPUs hold.
void add_call_sums(const trace::SumsMemory& memory, CallSums& sums);
// The same over all live parts. Nothing for an event that does not sum up its calls.
void add_call_sums(const trace::Area& area, std::uint32_t event, CallSums& sums);

}  // namespace uprobe::summary
