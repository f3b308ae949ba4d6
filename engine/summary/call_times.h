// SPDX-License-Identifier: MIT
// Summaries of calls: a definition becomes one of the function's return, which records nothing and adds each call to its sums in
// the target (engine/shared/call_sums.h); the sums become a row of a table.
//
//   p:e PATH:f ARGUMENTS  -->  r:e PATH:f $latency $self   disabled
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/spec/probe_spec.h"
#include "engine/summary/call_sums.h"
#include "engine/types.h"

namespace uprobe::summary {

// Of the group of events that sum up; a group that the user chose has it as its end.
inline constexpr std::string_view kGroup = "calls";

// Of a definition as it was parsed, before its symbol is looked up. It fetches the two times in place of its own arguments.
spec::ProbeSpec sums_of(spec::ProbeSpec spec);

// What else is known of the calls.
struct CallCounts {
  std::uint64_t began = 0;
  std::uint64_t unfollowed = 0;    // calls whose return could not be followed
  std::uint64_t untimed = 0;       // returns that are in no bucket
  std::uint64_t self_unknown = 0;  // returns without a self time
};
CallSummary summarize(const summary::CallSums& sums, const CallCounts& counts);

}  // namespace uprobe::summary
