// SPDX-License-Identifier: MIT
// Summaries of calls: a definition becomes one of the function's return, which records nothing and adds each call to a histogram
// of its latency in the target; the histogram becomes a row of a table.
//
//   p:e PATH:f ARGUMENTS  -->  r:e PATH:f $latency $self   with the trigger kCallTimes, disabled
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/base/result.h"
#include "engine/program/histogram.h"
#include "engine/spec/probe_spec.h"
#include "engine/trace/histogram_copy.h"
#include "engine/types.h"

namespace uprobe::summary {

// A value's bucket is at most 1/32 of the value wide.
inline constexpr std::string_view kCallTimes = "hist:keys=latency.log2=5:vals=latency,self";
// Of the group of events that sum up; a group that the user chose has it as its end.
inline constexpr std::string_view kGroup = "calls";

// Of a definition as it was parsed, before its symbol is looked up. It fetches the two times in place of its own arguments.
spec::ProbeSpec sums_of(spec::ProbeSpec spec);

bool is_of_calls(const program::HistogramPlan& plan);
// The size of each histogram, as a power of two, where `events` of them lie in the session's memory. Code::limit: they would
// take more than 256 MiB.
Result<std::uint32_t> bits_for(std::size_t events);

// `began` calls, `unfollowed` of which have a return that could not be followed; `self_unknown`: returns without a self time.
// The copy's sums are those of kCallTimes.
CallSummary summarize(const trace::HistogramCopy& copy, std::uint64_t began, std::uint64_t unfollowed,
                      std::uint64_t self_unknown);

}  // namespace uprobe::summary
