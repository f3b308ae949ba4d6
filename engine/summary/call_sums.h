// SPDX-License-Identifier: MIT
// A copy of the sums of an event's calls at one moment (engine/shared/call_sums.h), read from memory that the target can write.
// Nothing in it is trusted: for any contents of rows and cells, each bucket of a row counts once, and the copy has no more entries
// than there are buckets.
#pragma once

#include <compare>
#include <cstddef>
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
  // Of one process's calls alone: returns in no bucket, those without a self time, calls whose return could not be followed.
  std::uint64_t untimed = 0, self_unknown = 0, unfollowed = 0;

  std::uint64_t timed() const;  // calls in `times`
  void add(const CallSums& more);
  void take_off(const CallSums& earlier);  // which it contains
};

// Adds what the rows of all CPUs hold.
void add_call_sums(const trace::SumsMemory& memory, CallSums& sums);
// The same over all live parts and processes. Nothing for an event that does not sum up its calls.
void add_call_sums(const trace::Area& area, std::uint32_t event, CallSums& sums);
// The same for the processes of one bank of a live part.
struct Bank {
  std::size_t part = 0;
  std::uint32_t number = 0;  // below its used_banks()
  friend auto operator<=>(const Bank&, const Bank&) = default;
};
void add_call_sums(const trace::Area& area, std::uint32_t event, Bank bank, CallSums& sums);

}  // namespace uprobe::summary
