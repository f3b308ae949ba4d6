// SPDX-License-Identifier: MIT
// Histograms: the kernel's language for `hist` triggers (Documentation/trace/histogram.rst), without variables, expressions and
// actions.
//
//   hist:keys=KEY[,KEY[,KEY]][:vals=VALUE[,...]][:sort=FIELD[.descending][,...]][:size=N][:nohitcount][:pause] [if FILTER]
//   KEY     FIELD, FIELD.hex, .sym, .sym-offset, .log2, .log2=BITS, .buckets=N, common_pid.execname, common_cpu, common_stacktrace
//   VALUE   hitcount or a number of the event, each with .hex, .percent or .graph if wanted; two besides hitcount
//
// Refusals and their texts are as in the kernel (Linux 6.18, kernel/trace/trace_events_hist.c); for its refusals without a
// text, and for unsupported parts, the tool has texts of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/program/layout.h"
#include "engine/shared/histogram.h"

namespace uprobe::program {

enum class HistogramModifier : std::uint8_t {
  none,
  hex,
  symbol,         // "sym"
  symbol_offset,  // "sym-offset"
  task,           // "execname"
  log2,
  log2_parts,  // "log2=BITS"
  buckets,
  percent,
  graph,
};

struct HistogramWord {
  std::string name;  // as it prints
  HistogramModifier modifier = HistogramModifier::none;
  std::uint64_t width = 0;   // of buckets; the bits of log2_parts
  bool is_hitcount = false;  // `field` is unused
  shared::HistogramField field = {};
};

struct HistogramSort {
  std::size_t field = 0;  // 0: hitcount, then the values, then the keys
  bool descending = false;
};

struct HistogramPlan {
  std::vector<HistogramWord> values;  // the first is hitcount, which prints unless no_hitcount
  std::vector<HistogramWord> keys;
  std::vector<HistogramSort> sorts;
  std::uint32_t bits = shared::kDefaultHistogramBits;
  bool no_hitcount = false;
  bool is_paused = false;
  bool wants_entry = false;
  std::string filter;
  std::uint32_t key_bytes = 0;

  // "hist:keys=u:vals=hitcount:sort=hitcount:size=2048 [active]"
  std::string text() const;
};

// The text after "hist:", from `at` in `text` to `end`. Error::where is `text`.
Result<HistogramPlan> parse_histogram(std::string_view text, std::size_t at, std::size_t end,
                                      const EventLayout& layout);

// Whether the kernel treats the two as the same histogram.
bool are_same(const HistogramPlan& a, const HistogramPlan& b);

}  // namespace uprobe::program
