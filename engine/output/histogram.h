// SPDX-License-Identifier: MIT
// Prints histograms in the format of the kernel's `hist` files (kernel/trace/trace_events_hist.c). Where the kernel does not
// define the order, equal entries are ordered by key.
#pragma once

#include <functional>
#include <string>

#include "engine/output/symbols.h"
#include "engine/program/histogram.h"
#include "engine/trace/histogram_copy.h"

namespace uprobe::format {

struct HistogramNames {
  std::function<std::string(std::uint32_t tid)> task;
  Symbols* symbols = nullptr;   // names code addresses; null: they print as numbers
  bool escape_control = false;  // print bytes that are not text as \x1b
};

std::string print_histogram(const program::HistogramPlan& plan, const trace::HistogramCopy& copy,
                            const HistogramNames& names);

}  // namespace uprobe::format
